"""A run in its folder: begun, stopped by signals, resumed, watched. A kill at any moment loses at most the updates
since the last checkpoint."""

import fcntl
import json
import platform
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import IO, Any

import torch
from rich.console import Console
from torch import Tensor

from ebmlife import build, checkpoint, watch
from ebmlife.errors import BadInput, Diverged
from ebmlife.files import sweep, whole
from ebmlife.loop import Report
from ebmlife.randomness import generator
from ebmlife.recipe import Recipe, differences, validate
from ebmlife.starts import FromGenerator


@dataclass(frozen=True)
class Outcome:
    folder: Path
    update: int
    finished: bool  # False: a signal stopped it
    figures: Report | None  # of the last update made


def begin(recipe: Recipe, folder: Path, *, console: Console) -> Outcome:
    """A new run in a new folder."""
    if folder.exists():
        raise BadInput(f"{folder} exists already; choose another --out, or go on with: ebmlife resume {folder}")
    training = _build(recipe)  # before anything is written: most mistakes show here
    _make_folder(folder, recipe)
    with _alone(folder):
        return _work(training, folder, console)


def resume(
    folder: Path,
    *,
    change: Callable[[Recipe], Recipe] = lambda recipe: recipe,
    allow_changes: bool = False,
    from_update: int | None = None,
    console: Console,
) -> Outcome:
    """Goes on from the newest checkpoint (or that of `from_update`) with the run's recipe, changed by `change`."""
    with _alone(folder):
        old = read_recipe(folder)
        new = build.resolve(change(old))
        at = checkpoint.choose(folder, from_update) or 0  # 0: killed before its first checkpoint
        state = checkpoint.load(checkpoint.path(folder, at))[0] if at else None
        saved = validate(state["recipe"]) if state else old
        changes = differences(saved, new)
        if changes and not allow_changes:
            raise BadInput(
                f"the recipe is not that of the checkpoint at update {at}: {'; '.join(changes)}; "
                "take the change back, or add --allow-changes"
            )
        if new.updates < at:
            raise BadInput(f"{folder} is at update {at} already; --updates must not be less, got {new.updates}")
        training = _build(new, resumed=state is not None)
        if state is not None:
            _restore(training, state, changes)
        checkpoint.abandon(folder, after=at)
        _write_recipe(folder, new)
        if state is not None and changes:
            _save(training, folder)  # under the new recipe, or a kill would leave a checkpoint of the old one
        return _work(training, folder, console)


def _build(recipe: Recipe, *, resumed: bool = False) -> build.Training:
    torch.manual_seed(recipe.seed)  # nothing here draws from the global generator, but a user's network may (dropout)
    return build.training(recipe, resumed=resumed)


def _restore(training: build.Training, state: dict[str, Any], changes: list[str]) -> None:
    try:
        training.load_state_dict(state)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise BadInput(f"the checkpoint does not fit the changed recipe ({'; '.join(changes)}): {error}") from error


def read_recipe(folder: Path) -> Recipe:
    try:
        return build.resolve(validate(json.loads((folder / "recipe.json").read_text())))
    except (OSError, ValueError, BadInput) as error:
        raise BadInput(f"{folder / 'recipe.json'} cannot be used: {error}") from error


def _work(training: build.Training, folder: Path, console: Console) -> Outcome:
    trainer, recipe = training.trainer, training.model.recipe
    last: list[Report] = []

    def save_when_due(figures: Report) -> None:
        last[:] = [figures]
        if figures.update % recipe.checkpoint.every == 0 or figures.update == recipe.updates or stop.wanted:
            _save(training, folder)
        if stop.wanted:
            raise _Stopped

    with ExitStack() as stack:
        stop = stack.enter_context(_signals())
        log = watch.Log(folder / "log.jsonl", trainer.chains, after=trainer.update)
        every = recipe.watch.tensorboard_every
        board = watch.Board(folder / "tensorboard", trainer.chains, every=every, after=trainer.update)
        for open_file in (log, board):
            stack.callback(open_file.close)
        bar = stack.enter_context(watch.Bar(done=trainer.update, updates=recipe.updates, console=console))
        pictures = watch.Pictures(folder, _sources(training), every=recipe.watch.pictures_every)
        try:
            trainer.fit(recipe.updates, after=[log, board, bar, pictures, save_when_due])
        except _Stopped:
            return Outcome(folder, trainer.update, finished=False, figures=last[0])
        except Diverged as error:
            helps = f"what usually helps: {recipe.remedy}; resume takes such a change with --allow-changes"
            raise Diverged(f"{error}; {_last_good(folder)}; {helps}") from error
        pictures.draw(trainer.update)
    return Outcome(folder, trainer.update, finished=True, figures=last[0] if last else None)


def _save(training: build.Training, folder: Path) -> None:
    update, recipe = training.trainer.update, training.model.recipe
    about = {"update": update, "recipe_hash": recipe.hash, "versions": _versions()}
    checkpoint.save(checkpoint.path(folder, update), training.state_dict(), about=about)
    checkpoint.prune(folder, keep=recipe.checkpoint.keep, keep_every=recipe.checkpoint.keep_every)


def _sources(training: build.Training) -> dict[str, Callable[[], Tensor]]:
    """What is drawn at intervals: samples of the averaged model, the bank, the generator alone."""
    n, model, chains = training.model.recipe.watch.pictures, training.model, training.trainer.chains
    sources: dict[str, Callable[[], Tensor]] = {"samples": lambda: model.sample(n)}
    if chains is not None and chains.bank is not None:
        sources["bank"] = lambda: chains.bank.x[:n] if chains.bank else torch.empty(0)
    if model.generator is not None:
        start = FromGenerator(model.generator)
        sources["generator"] = lambda: start(n, rng=generator(0, device=model.device)).x
    return sources


def _last_good(folder: Path) -> str:
    available = checkpoint.updates(folder)
    return f"last good checkpoint: {checkpoint.path(folder, available[-1])}" if available else "no checkpoint yet"


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("ebmlife", "torch", "numpy")} | {"python": platform.python_version()}


def _make_folder(folder: Path, recipe: Recipe) -> None:
    with whole(folder) as unfinished:
        unfinished.mkdir()
        _write_recipe(unfinished, recipe)


def _write_recipe(folder: Path, recipe: Recipe) -> None:
    with whole(folder / "recipe.json") as unfinished:
        unfinished.write_text(recipe.model_dump_json(indent=2))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two processes in one run folder would tear it apart; the lock dies with its process."""
    if not (folder / "recipe.json").is_file():
        raise BadInput(f"{folder} is not the folder of a run: it has no recipe.json")
    with (folder / ".lock").open("w") as stream:
        _lock(stream, folder)
        sweep(folder)
        sweep(folder / "checkpoints")
        yield


def _lock(stream: IO[str], folder: Path) -> None:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BadInput(f"{folder} is in use by another process; wait for it or stop it") from error


class _Stopped(Exception):
    pass


@dataclass
class _Stop:
    wanted: bool = False


@contextmanager
def _signals() -> Iterator[_Stop]:
    """Within: SIGINT and SIGTERM ask for a stop after the update under way; a second one kills as usual."""
    stop = _Stop()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.wanted = True
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
