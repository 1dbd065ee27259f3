"""Restores a run from its newest intact checkpoint, after comparing it with what the recipe builds."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebmlife.distributed import Ranks
from ebmlife.errors import BadInput
from ebmlife.recipes.schema import Recipe, differences, validate
from ebmlife.recipes.sections import Optimizer
from ebmlife.runs import build, machine, shards
from ebmlife.runs.export import can_be_resumed
from ebmlife.runs.folder import UNSAVED, read_recipe, workspace
from ebmlife.runs.logging import read_log, shows_updates
from ebmlife.storage import checkpoint, contents

State = dict[str, Any]


@dataclass(frozen=True)
class Saved:
    """The saved state of a run: a checkpoint, or only its recipe if it was killed before the first checkpoint."""

    folder: Path
    update: int
    recipe: Recipe  # from recipe.json, if that can be read
    trained: Recipe  # the recipe in the checkpoint
    state: State | None  # None: no checkpoint
    manifest: State
    notes: tuple[str, ...]

    @property
    def place(self) -> Path:
        return checkpoint.path(self.folder, self.update)

    def check(self, recipe: Recipe, *, allow_changes: bool) -> list[str]:
        """Returns the changes from the trained recipe to another one. Raises BadInput if they are not allowed."""
        changes = differences(self.trained, recipe)
        if not allow_changes:
            workspace(self.folder).refuse(changes)
        if recipe.updates < self.update:
            reached = f"{self.folder} is at update {self.update} already"
            raise BadInput(f"{reached}; --updates must be at least that, got {recipe.updates}")
        return changes

    def restore(self, training: build.Training, recipe: Recipe, ranks: Ranks) -> list[str]:
        """Loads the state, or this rank's part of it, into a training of a recipe; returns notes for the user."""
        if self.state is None:
            return [*self.notes]
        count, state = shards.saved_by(self.manifest, self.place), self.state
        local = contents.restored(
            f"checkpoint {self.place}",
            lambda: shards.localize(state, self.place, saved=count, ranks=ranks, device=training.model.device),
        )
        _restore(training, local, self.place, old=self.trained, new=recipe)
        notes = [*self.notes, *([] if count == ranks.count else [_resharded(count, ranks.count)])]
        now = machine.describe(training.model.recipe, training.model.device) | machine.versions()
        changed = machine.changes(self.manifest.get("machine", {}) | self.manifest.get("versions", {}), now)
        return notes if changed is None else [*notes, changed]


def find_checkpoint(folder: Path, update: int | None, show: Callable[[str], None]) -> int | None:
    """Returns the update to resume from: the requested one, or the newest intact one; None if none was saved.

    Damaged checkpoints after it are set aside, and `show` is called with a line about each. If no checkpoint is sound,
    or if the log has updates but the checkpoints are gone, BadInput is raised: such a run never restarts at update 0.
    """
    read_log(folder / "log.jsonl")  # fails before anything is changed
    if update is not None:
        checkpoint.choose(folder, update)
        _verify(checkpoint.path(folder, update))
        return update
    newest = checkpoint.newest_sound(folder, _verify, show)
    if newest is not None:
        return newest
    if shows_updates(folder / "log.jsonl") and not (folder / UNSAVED).exists():
        raise BadInput(
            f"{folder} has no checkpoint, but its log.jsonl has updates: put the checkpoints back into "
            f"{folder / 'checkpoints'}, or remove log.jsonl to begin again at update 0"
        )
    return None


def read_saved(folder: Path, update: int | None) -> Saved:
    """Reads the checkpoint of an update; None: the run was killed before its first one."""
    if update is None:
        recipe = read_recipe(folder)
        return Saved(folder, 0, recipe, trained=recipe, state=None, manifest={}, notes=())
    place = checkpoint.path(folder, update)
    state, manifest = checkpoint.load(place)
    trained = contents.restored(f"checkpoint {place}", lambda: build.resolve(validate(contents.part(state, "recipe"))))
    notes: tuple[str, ...] = ()
    try:
        recipe = read_recipe(folder)
    except BadInput as error:
        recipe, notes = trained, (f"{error}; the checkpoint's recipe is used",)
    if not can_be_resumed(state):
        raise BadInput(f"{folder} holds weights without the state of a training: it can be used, but not resumed")
    return Saved(folder, update, recipe, trained, state, manifest, notes)


def _verify(place: Path) -> None:
    for rank in range(1, shards.saved_by(checkpoint.verify(place), place)):
        checkpoint.verify(checkpoint.shard(place, rank))


def _resharded(saved: int, count: int) -> str:
    return (
        f"saved by {saved} {'rank' if saved == 1 else 'ranks'}, resumed by {count}: the banks are split again and "
        "random streams start again, so the bits differ from those of a run with a constant number of ranks"
    )


def _restore(training: build.Training, state: State, place: Path, *, old: Recipe, new: Recipe) -> None:
    """Loads a state into what the recipe built, after checking that names, shapes and dtypes agree."""
    changed = differences(old, new)
    why = f" does not fit the changed recipe ({'; '.join(changed)})" if changed else " cannot be used"
    wrong = _wrong(training, state, place, changed=bool(changed))
    if wrong is None:
        state = _without_other_moments(state, old, new)
        try:
            contents.restored("the state", lambda: training.load_state_dict(state))
        except BadInput as error:
            wrong = str(error)
    if wrong is not None:
        raise BadInput(f"checkpoint {place}{why}: {wrong}{_older(place)}")


def _wrong(training: build.Training, state: State, place: Path, *, changed: bool) -> str | None:
    """Returns what is wrong with a state, or None."""
    like = {name: value for name, value in training.state_dict().items() if name not in ("recipe", "prior")}
    found = {name: value for name, value in state.items() if name not in ("recipe", "prior")}
    trainer = found.get("trainer")
    if changed and isinstance(trainer, dict):  # a generator that learned may be frozen from now on
        like["trainer"] = like["trainer"] | ({"generator": {}} if trainer.get("generator") is not None else {})
        like["frozen_generator"] = {} if found.get("frozen_generator") is not None else None
        found["trainer"] = {name: value for name, value in trainer.items() if name in like["trainer"]}
    wrong = contents.mismatch(found, like) or contents.not_finite(found) or contents.negative(found)
    if wrong is None and found["trainer"]["update"] != int(place.name):
        wrong = f"it is of update {found['trainer']['update']}"
    return wrong


def _without_other_moments(state: State, old: Recipe, new: Recipe) -> State:
    """Drops the moments of an optimizer of another kind. Those of the new one begin at zero."""
    trainer = dict(state["trainer"])
    for name, learned in state["trainer"].items():
        if isinstance(learned, dict) and "optimizer" in learned:
            before, now = (_optimizer(recipe, name) for recipe in (old, new))
            if before is not None and now is not None and _kept(before) != _kept(now):
                trainer[name] = learned | {"optimizer": None}
    return state | {"trainer": trainer}


def _optimizer(recipe: Recipe, learner: str) -> Optimizer | None:
    generator = getattr(recipe, "generator", None)
    found: Optimizer | None = generator.optimizer if learner == "generator" and generator else recipe.optimizer
    return found


def _kept(optimizer: Optimizer) -> tuple[str, bool]:
    """Returns the settings that determine which moments an optimizer has."""
    return optimizer.kind, optimizer.kind == "adam" or optimizer.momentum > 0


def _older(place: Path) -> str:
    older = [update for update in checkpoint.updates(place.parent.parent) if update < int(place.name)]
    return f"; the one before it: resume --from-update {older[-1]}" if older else ""
