"""Begins and resumes runs in their folders, and stops them on signals.

A run that is killed loses at most the updates since its last checkpoint. If several ranks share a run, only the first
one writes, except for the shards of the others.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from ebmlife.distributed import SINGLE_PROCESS, Ranks
from ebmlife.errors import Diverged, Lost
from ebmlife.recipes.schema import Recipe
from ebmlife.runs import build
from ebmlife.runs.folder import existing_run, holds_run, new_run, refuse_taken, require_run, write_recipe
from ebmlife.runs.resuming import State, find_checkpoint, read_saved
from ebmlife.runs.saving import last_good, prune, save
from ebmlife.runs.user_code import NOTHING, Trust
from ebmlife.runs.watchers import pictures, watchers
from ebmlife.sampling.rng import generator
from ebmlife.storage import checkpoint
from ebmlife.storage.interrupt import signals
from ebmlife.training.base import Report


@dataclass(frozen=True)
class Outcome:
    """How a call of `begin` or `resume` ended."""

    folder: Path
    update: int
    finished: bool  # False: a signal stopped it
    last: Report | None  # of the last update; None if no update was made


def begin(
    recipe: Recipe, folder: Path, *, console: Console, ranks: Ranks = SINGLE_PROCESS, trust: Trust = NOTHING
) -> Outcome:
    """Trains a recipe in a new folder.

    Args:
        recipe: What is trained.
        folder: Where the run is saved; it must not exist, or must be empty.
        console: Where progress is shown.
        ranks: The processes that share the run.
        trust: The functions that the recipe, or a run that it names, may call.

    Returns:
        How it ended.

    Raises:
        BadInput: The folder is taken, or the recipe does not fit its data.
        Diverged: The training diverged.
    """
    with ranks.raise_on_all():
        if ranks.first:
            refuse_taken(folder)
        training = _build(recipe, ranks, trust)  # before anything is written: most mistakes are found here
    with _inside(folder, new_run(folder, recipe), ranks):
        return _train(training, folder, console, ranks)


def begin_or_resume(
    recipe: Recipe, folder: Path, *, console: Console, ranks: Ranks = SINGLE_PROCESS, trust: Trust = NOTHING
) -> Outcome:
    """Begins a run, or resumes the one in the folder if it has the same recipe, for unattended starts.

    Arguments, result and errors are those of `begin`.
    """
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
    """Continues the run in a folder from one of its checkpoints.

    Args:
        folder: The folder of the run.
        change: Returns the recipe to continue with, given that of the run.
        allow_changes: Whether that recipe may differ in what is learned.
        from_update: The update of the checkpoint. None: the newest sound one.
        console: Where progress is shown.
        ranks: The processes that share the run.
        trust: The functions that the recipe, or a run that it names, may call.

    Returns:
        How it ended.

    Raises:
        BadInput: There is nothing to resume, or the recipe has changed.
        Diverged: The training diverged.
    """

    def show(line: str) -> None:
        console.print(line, soft_wrap=True, highlight=False, markup=False)

    with _inside(folder, existing_run(folder), ranks):
        with ranks.raise_on_all():
            found = find_checkpoint(folder, from_update, show) if ranks.first else None
        found = ranks.from_rank0(found)
        with ranks.raise_on_all():
            saved = read_saved(folder, found)
            recipe = build.resolve(change(saved.recipe))
            changes = saved.check(recipe, allow_changes=allow_changes)
            training = _build(recipe, ranks, trust, resumed=saved.state)
            notes = saved.restore(training, recipe, ranks)
        for line in notes:
            show(line)
        with ranks.raise_on_all():
            if ranks.first:
                checkpoint.abandon(folder, after=saved.update)
                write_recipe(folder, recipe)
                prune(folder, recipe)  # the run may have been killed between a save and this
        if saved.state is not None and changes:
            save(
                training, folder, ranks
            )  # under the new recipe: if killed, the run must not have a checkpoint of the old one
        return _train(training, folder, console, ranks)


def _build(recipe: Recipe, ranks: Ranks, trust: Trust, *, resumed: State | None = None) -> build.Training:
    # Nothing here draws from the global generator, but a user's network may (dropout).
    torch.manual_seed(generator(recipe.seed, build.scope(ranks)).initial_seed() if ranks.count > 1 else recipe.seed)
    return build.training(recipe, resumed=resumed, ranks=ranks, trust=trust)


def _train(training: build.Training, folder: Path, console: Console, ranks: Ranks) -> Outcome:
    """Makes the remaining updates. Saves at intervals, at the end, and when a signal requests a stop."""
    trainer, recipe = training.trainer, training.model.recipe
    last: list[Report] = []

    def save_when_due(report: Report) -> None:
        last[:] = [report]
        stopping = ranks.any(stop.requested)  # a signal may reach one rank before the others
        if report.update % recipe.checkpoint.every == 0 or report.update == recipe.updates or stopping:
            save(training, folder, ranks)
        if stopping:
            raise _Stopped

    with ExitStack() as stack:
        stop = stack.enter_context(signals())
        watching = watchers(training, folder, console, stack) if ranks.first else []
        try:
            trainer.fit(recipe.updates, after=[*watching, save_when_due])
        except _Stopped:
            return Outcome(folder, trainer.update, finished=False, last=last[0])
        except Diverged as error:
            helps = f"what usually helps: {recipe.divergence_hint}; resume accepts such a change with --allow-changes"
            good = last_good(folder, before=error.since)
            raise Diverged(f"{error}; {good}; {helps}", since=error.since) from error
        except Lost as error:
            raise Lost(f"{error}; {last_good(folder)}; restart all ranks with `ebmlife resume {folder}`") from error
        if ranks.first:
            pictures(training, folder).draw(trainer.update)
    return Outcome(folder, trainer.update, finished=True, last=last[0] if last else None)


@contextmanager
def _inside(folder: Path, lock: AbstractContextManager[None], ranks: Ranks) -> Iterator[None]:
    """Holds the lock of the run's folder on the first rank. A folder that disappears is reported as such."""
    with ranks.on_rank0(lock):
        try:
            yield
        except OSError:
            require_run(folder)
            raise


class _Stopped(Exception):
    """A signal requested a stop, and the run is saved."""
