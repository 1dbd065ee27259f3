"""Where a run continues from: the newest checkpoint that is sound, compared with what the recipe builds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ebmlife.errors import BadInput
from ebmlife.recipes.schema import Recipe, differences
from ebmlife.recipes.sections import Optimizer
from ebmlife.runs import build, machine, shards
from ebmlife.runs.folder import UNSAVED
from ebmlife.runs.logging import read_log, shows_updates
from ebmlife.storage import checkpoint, contents

State = dict[str, Any]


def settle(folder: Path, wanted: int | None, say: Callable[[str], None]) -> int | None:
    """The update to continue from: the one that is wanted, or the newest whose checkpoint is sound; None: no update was
    ever saved.

    Damaged checkpoints newer than that are set aside, and `say` is told. Where there is no sound one, or checkpoints
    are lost that the log tells of, it is a BadInput: nothing begins at update 0 that was further before.
    """
    read_log(folder / "log.jsonl")  # one that cannot be read is said before anything is changed
    if wanted is not None:
        at = checkpoint.choose(folder, wanted)
        assert at is not None
        _verify(checkpoint.path(folder, at))
        return at
    newest = checkpoint.newest_sound(folder, _verify, say)
    if newest is not None:
        return newest
    if shows_updates(folder / "log.jsonl") and not (folder / UNSAVED).exists():
        raise BadInput(
            f"{folder} has no checkpoint, but its log.jsonl tells of updates: put the checkpoints back into "
            f"{folder / 'checkpoints'}, or remove log.jsonl to begin again at update 0"
        )
    return None


def _verify(place: Path) -> None:
    for rank in range(1, shards.saved_by(checkpoint.verify(place), place)):
        checkpoint.verify(checkpoint.shard(place, rank))


def conditions(manifest: State, training: build.Training) -> str | None:
    """How this process differs from the one that saved, where bits depend on it."""
    now = machine.describe(training.model.recipe, training.model.device) | machine.versions()
    return machine.changes(manifest.get("machine", {}) | manifest.get("versions", {}), now)


def restore(training: build.Training, state: State, place: Path, *, old: Recipe, new: Recipe) -> None:
    """Loads a checkpoint's state into what the recipe built, once it has the same names, shapes and dtypes."""
    changed = differences(old, new)
    why = f" does not fit the changed recipe ({'; '.join(changed)})" if changed else " cannot be used"
    said = _wrong(training, state, place, changed=bool(changed))
    if said is None:
        state = _without_other_moments(state, old, new)
        try:
            contents.restored("the state", lambda: training.load_state_dict(state))
        except BadInput as error:
            said = str(error)
    if said is not None:
        raise BadInput(f"checkpoint {place}{why}: {said}{_older(place)}")


def _wrong(training: build.Training, state: State, place: Path, *, changed: bool) -> str | None:
    """What is wrong with a state; None if nothing is."""
    like = {name: value for name, value in training.state_dict().items() if name not in ("recipe", "prior")}
    found = {name: value for name, value in state.items() if name not in ("recipe", "prior")}
    trainer = found.get("trainer")
    if changed and isinstance(trainer, dict):  # a generator that learned may be frozen from now on
        like["trainer"] = like["trainer"] | ({"generator": {}} if trainer.get("generator") is not None else {})
        like["frozen_generator"] = {} if found.get("frozen_generator") is not None else None
        found["trainer"] = {name: value for name, value in trainer.items() if name in like["trainer"]}
    said = contents.mismatch(found, like) or contents.not_finite(found) or contents.negative(found)
    if said is None and found["trainer"]["update"] != int(place.name):
        said = f"it is of update {found['trainer']['update']}"
    return said


def _without_other_moments(state: State, old: Recipe, new: Recipe) -> State:
    """Moments of another kind of optimizer are of no use: the new one's begin at zero."""
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
    """What decides which moments it keeps."""
    return optimizer.kind, optimizer.kind == "adam" or optimizer.momentum > 0


def _older(place: Path) -> str:
    older = [update for update in checkpoint.updates(place.parent.parent) if update < int(place.name)]
    return f"; the one before it: resume --from-update {older[-1]}" if older else ""
