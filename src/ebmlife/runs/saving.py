"""Saves the checkpoints of a run. The first rank writes the checkpoint, and every other rank writes its shard."""

from pathlib import Path
from shlex import quote

from ebmlife.distributed import Ranks
from ebmlife.errors import Diverged
from ebmlife.recipes.schema import Recipe
from ebmlife.runs import build, machine, shards
from ebmlife.runs.folder import UNSAVED, require_run
from ebmlife.storage import checkpoint, contents


def save(training: build.Training, folder: Path, ranks: Ranks) -> None:
    """Saves a checkpoint if all values are finite; otherwise all ranks raise Diverged and nothing is saved."""
    update, model = training.trainer.update, training.model
    place, state = checkpoint.path(folder, update), training.state_dict()
    about = {"update": update, "recipe_hash": model.recipe.hash, "versions": machine.versions()}
    about["machine"] = machine.describe(model.recipe, model.device)
    with ranks.raise_on_all():
        require_run(folder)
        not_finite = contents.not_finite({name: value for name, value in state.items() if name != "recipe"})
        if not_finite is not None:
            raise Diverged(f"{not_finite} after update {update}")
    with ranks.raise_on_all():
        if not ranks.first:
            checkpoint.save_shard(place, shards.shard_of(state), rank=ranks.rank)
    with ranks.raise_on_all():
        if ranks.first:
            checkpoint.save(place, state, about=about, ranks=ranks.count)
            (folder / UNSAVED).unlink(missing_ok=True)
            prune(folder, model.recipe)


def prune(folder: Path, recipe: Recipe) -> None:
    """Removes the checkpoints that the recipe does not keep."""
    checkpoint.prune(folder, keep=recipe.checkpoint.keep, keep_every=recipe.checkpoint.keep_every)


def last_good(folder: Path, *, before: int | None = None) -> str:
    """Names the newest checkpoint, or the newest before an update, with the command that resumes from it."""
    available = checkpoint.updates(folder)
    if not available:
        return "no checkpoint yet"
    good = [update for update in available if before is None or update < before]
    if not good:
        oldest = checkpoint.path(folder, available[0])
        return f"no checkpoint from before update {before} is kept; the oldest one is {oldest}"
    named = f"last good checkpoint: {checkpoint.path(folder, good[-1])}"
    if good[-1] == available[-1]:
        return named
    return f"{named}; resume from it with: ebmlife resume {quote(str(folder))} --from-update {good[-1]}"
