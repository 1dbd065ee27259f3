"""A run in its folder: begun, stopped by signals, resumed, watched. A kill at any moment loses at most the updates
since the last checkpoint. Where several ranks share a run, the first one alone writes, but for the others' shards."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from ebmlife.distributed import SINGLE_PROCESS, Ranks
from ebmlife.errors import BadInput, Diverged, Lost
from ebmlife.recipes.schema import Recipe, differences, validate
from ebmlife.runs import build, logging, machine, shards
from ebmlife.runs.export import can_be_resumed
from ebmlife.runs.folder import UNSAVED, holds_run, make_folder, refuse_taken, still_there, write_recipe
from ebmlife.runs.progress import ProgressDisplay, TrainingProgress
from ebmlife.runs.resuming import conditions, restore, settle
from ebmlife.runs.user_code import NOTHING, Trust
from ebmlife.sampling.rng import generator
from ebmlife.storage import checkpoint, contents
from ebmlife.storage.atomic import read_json, sweep
from ebmlife.storage.interrupt import locked, signals
from ebmlife.training.base import Report
from ebmlife.training.starts import FromGenerator


@dataclass(frozen=True)
class Outcome:
    folder: Path
    update: int
    finished: bool  # False: a signal stopped it
    figures: Report | None  # of the last update made


def begin(
    recipe: Recipe, folder: Path, *, console: Console, ranks: Ranks = SINGLE_PROCESS, trust: Trust = NOTHING
) -> Outcome:
    """A new run in a new folder; `trust`: the functions that the recipe, or a run that it names, may call."""
    with ranks.raise_on_all():
        if ranks.first:
            refuse_taken(folder)
        training = _build(recipe, ranks, trust)  # before anything is written: most mistakes show here
    with ranks.raise_on_all():
        if ranks.first:
            make_folder(folder, recipe)
    with _exclusive(folder, ranks):
        return _work(training, folder, console, ranks)


def begin_or_resume(
    recipe: Recipe, folder: Path, *, console: Console, ranks: Ranks = SINGLE_PROCESS, trust: Trust = NOTHING
) -> Outcome:
    """A new run, or the one that the folder holds, which must be of the same recipe: for starts that nobody attends."""
    if ranks.any(ranks.first and holds_run(folder)):
        return resume(folder, change=lambda _: recipe, console=console, ranks=ranks, trust=trust)
    return begin(recipe, folder, console=console, ranks=ranks, trust=trust)


def resume(
    folder: Path,
    *,
    change: Callable[[Recipe], Recipe] = lambda recipe: recipe,
    allow_changes: bool = False,
    from_update: int | None = None,
    console: Console,
    ranks: Ranks = SINGLE_PROCESS,
    trust: Trust = NOTHING,
) -> Outcome:
    """Continues from the newest sound checkpoint, or that of `from_update`; `change` may alter the run's recipe."""

    def say(line: str) -> None:
        console.print(line, soft_wrap=True, highlight=False, markup=False)

    with _exclusive(folder, ranks):
        with ranks.raise_on_all():
            settled = settle(folder, from_update, say) if ranks.first else None
        with ranks.raise_on_all():
            settled = ranks.from_rank0(settled)
            at = settled or 0  # 0: killed before its first checkpoint
            place = checkpoint.path(folder, at)
            state, manifest = checkpoint.load(place) if settled is not None else (None, {})
            saved_recipe = None if state is None else _recipe_in(state, place)
            old, said = _known_recipe(folder, saved_recipe)
            if state is not None and not can_be_resumed(state):
                raise BadInput(f"{folder} holds weights without a training: it can be used, not resumed")
            before, new = saved_recipe or old, build.resolve(change(old))
            changes = differences(before, new)
            _check_changes(folder, at, new, changes, allow_changes)
            training = _build(new, ranks, trust, resumed=state)
            if state is not None:
                saved = shards.saved_by(manifest, place)
                mine = _share(state, place, saved, ranks, training)
                restore(training, mine, place, old=before, new=new)
                said += [_split_anew(saved, ranks.count)] if saved != ranks.count else []
                said += [line] if (line := conditions(manifest, training)) else []
        for line in said:
            say(line)
        with ranks.raise_on_all():
            if ranks.first:
                checkpoint.abandon(folder, after=at)
                write_recipe(folder, new)
                _prune(folder, new)  # a kill may have come between a save and this
        if state is not None and changes:
            _save(training, folder, ranks)  # under the new recipe, or a kill would leave a checkpoint of the old one
        return _work(training, folder, console, ranks)


def _recipe_in(state: dict[str, Any], place: Path) -> Recipe:
    return contents.restored(f"checkpoint {place}", lambda: build.resolve(validate(contents.part(state, "recipe"))))


def _known_recipe(folder: Path, saved: Recipe | None) -> tuple[Recipe, list[str]]:
    """A run's recipe, and what is to be said of it: a checkpoint has it too, where recipe.json is lost or damaged."""
    try:
        return read_recipe(folder), []
    except BadInput as error:
        if saved is None:
            raise
        return saved, [f"{error}; the checkpoint's recipe is used"]


def _share(state: dict[str, Any], place: Path, saved: int, ranks: Ranks, training: build.Training) -> dict[str, Any]:
    def localise() -> dict[str, Any]:
        return shards.localise(state, place, saved=saved, ranks=ranks, device=training.model.device)

    return contents.restored(f"checkpoint {place}", localise)


def _check_changes(folder: Path, at: int, new: Recipe, changes: list[str], allowed: bool) -> None:
    if changes and not allowed:
        raise BadInput(
            f"{folder}: the recipe is not that of the checkpoint at update {at}: {'; '.join(changes)}; "
            "take the change back, or use `ebmlife resume` with --allow-changes"
        )
    if new.updates < at:
        raise BadInput(f"{folder} is at update {at} already; --updates must not be less, got {new.updates}")


def _split_anew(saved: int, count: int) -> str:
    return (
        f"saved by {saved} {'rank' if saved == 1 else 'ranks'}, goes on with {count}: the banks are split anew and "
        "random streams begin anew, so that the bits are not those of a run that kept its number of ranks"
    )


def _build(recipe: Recipe, ranks: Ranks, trust: Trust, *, resumed: dict[str, Any] | None = None) -> build.Training:
    # Nothing here draws from the global generator, but a user's network may (dropout).
    torch.manual_seed(generator(recipe.seed, build.scope(ranks)).initial_seed() if ranks.count > 1 else recipe.seed)
    return build.training(recipe, resumed=resumed, ranks=ranks, trust=trust)


def read_recipe(folder: Path) -> Recipe:
    try:
        return build.resolve(validate(read_json(folder / "recipe.json")))
    except BadInput as error:
        raise BadInput(f"{folder / 'recipe.json'} cannot be used: {error}") from error


def _work(training: build.Training, folder: Path, console: Console, ranks: Ranks) -> Outcome:
    trainer, recipe = training.trainer, training.model.recipe
    last: list[Report] = []

    def save_when_due(figures: Report) -> None:
        last[:] = [figures]
        stopping = ranks.any(stop.wanted)  # a signal may reach one rank before the others
        if figures.update % recipe.checkpoint.every == 0 or figures.update == recipe.updates or stopping:
            _save(training, folder, ranks)
        if stopping:
            raise _Stopped

    with ExitStack() as stack:
        stop = stack.enter_context(signals())
        watchers = _watchers(training, folder, console, stack) if ranks.first else []
        try:
            trainer.fit(recipe.updates, after=[*watchers, save_when_due])
        except _Stopped:
            return Outcome(folder, trainer.update, finished=False, figures=last[0])
        except Diverged as error:
            helps = f"what usually helps: {recipe.divergence_hint}; resume takes such a change with --allow-changes"
            raise Diverged(f"{error}; {_last_good(folder)}; {helps}") from error
        except Lost as error:
            raise Lost(f"{error}; {_last_good(folder)}; start all again with `ebmlife resume {folder}`") from error
        if ranks.first:
            logging.Pictures(folder, _sources(training), trainer.chains, every=1).draw(trainer.update)
    return Outcome(folder, trainer.update, finished=True, figures=last[0] if last else None)


def _watchers(
    training: build.Training, folder: Path, console: Console, stack: ExitStack
) -> list[Callable[[Report], None]]:
    trainer, recipe = training.trainer, training.model.recipe
    log = logging.Log(folder / "log.jsonl", trainer.chains, after=trainer.update)
    every = recipe.watch.tensorboard_every
    board = logging.Board(folder / "tensorboard", trainer.chains, every=every, after=trainer.update)
    for open_file in (log, board):
        stack.callback(open_file.close)
    display = stack.enter_context(ProgressDisplay("update", console=console))
    shown = TrainingProgress(display, updates=recipe.updates)
    pictures = logging.Pictures(folder, _sources(training), trainer.chains, every=recipe.watch.pictures_every)
    if log.damaged:
        said = f"{log.damaged} damaged lines of log.jsonl are kept as {logging.DAMAGED_LOG}"
        console.print(said, soft_wrap=True, highlight=False)
    return [log, board, shown, pictures]


def _save(training: build.Training, folder: Path, ranks: Ranks) -> None:
    """A checkpoint of what is finite; else all ranks diverge, and the checkpoint before stays the newest."""
    update, model = training.trainer.update, training.model
    place, state = checkpoint.path(folder, update), training.state_dict()
    about = {"update": update, "recipe_hash": model.recipe.hash, "versions": machine.versions()}
    about["machine"] = machine.describe(model.recipe, model.device)
    with ranks.raise_on_all():
        still_there(folder)
        said = contents.not_finite({name: value for name, value in state.items() if name != "recipe"})
        if said is not None:
            raise Diverged(f"{said} after update {update}")
    with ranks.raise_on_all():
        if not ranks.first:
            checkpoint.save_shard(place, shards.of(state), rank=ranks.rank)
    with ranks.raise_on_all():
        if ranks.first:
            checkpoint.save(place, state, about=about, ranks=ranks.count)
            (folder / UNSAVED).unlink(missing_ok=True)
            _prune(folder, model.recipe)


def _prune(folder: Path, recipe: Recipe) -> None:
    checkpoint.prune(folder, keep=recipe.checkpoint.keep, keep_every=recipe.checkpoint.keep_every)


def _sources(training: build.Training) -> dict[str, Callable[[], Tensor]]:
    """What is drawn at intervals: samples of the averaged model, the bank, the generator alone."""
    n, model, chains = training.model.recipe.watch.pictures, training.model, training.trainer.chains
    sources: dict[str, Callable[[], Tensor]] = {"samples": lambda: model.sample(n, scope="picture")}
    if chains is not None and chains.bank is not None:
        sources["bank"] = lambda: chains.bank.x[:n] if chains.bank else torch.empty(0)
    if model.generator is not None:
        start = FromGenerator(model.generator)
        sources["generator"] = lambda: start(n, rng=generator(0, "picture/generator", device=model.device)).x
    return sources


def _last_good(folder: Path) -> str:
    available = checkpoint.updates(folder)
    return f"last good checkpoint: {checkpoint.path(folder, available[-1])}" if available else "no checkpoint yet"


@contextmanager
def _exclusive(folder: Path, ranks: Ranks = SINGLE_PROCESS) -> Iterator[None]:
    """Two processes in one run folder would tear it apart, unless they are ranks; the lock dies with the first one."""
    with ExitStack() as stack:
        with ranks.raise_on_all():
            if ranks.first:
                stack.enter_context(_locked(folder))
        try:
            yield
        except OSError:
            still_there(folder)
            raise


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    if not holds_run(folder):
        raise BadInput(f"{folder} is not the folder of a run: it has no recipe.json")
    with locked(folder):
        for place in (folder, folder / "checkpoints", folder / "pictures"):
            sweep(place)
        yield


class _Stopped(Exception):
    pass
