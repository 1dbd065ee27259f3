"""Networks without their training: the folder of a run that can be used for everything but to be resumed."""

from pathlib import Path
from typing import Any

from torch import nn

from ebmlife.errors import BadInput
from ebmlife.recipes.schema import EBMRecipe
from ebmlife.runs.prior import FixedPrior
from ebmlife.storage import checkpoint
from ebmlife.storage.atomic import atomic_write
from ebmlife.storage.contents import part


def write_weights(
    folder: Path,
    recipe: EBMRecipe,
    net: nn.Module,
    generator: nn.Module | None = None,
    prior: FixedPrior | None = None,
    *,
    shape: tuple[int, ...],
    update: int = 0,
    origin: str,  # where the weights come from, for the manifest
) -> None:
    """Writes a new folder that `build.load` takes: recipe.json and one checkpoint of averaged weights."""
    if folder.exists():
        raise BadInput(f"{folder} exists already; choose another --out")
    state: dict[str, Any] = {
        "trainer": {"update": update, "ebm": {"ema": net.state_dict()}, "generator": None},
        "recipe": recipe.model_dump(mode="json"),
        "shape": shape,
        "prior": None if prior is None else prior.state_dict(),
        "frozen_generator": None if generator is None else generator.state_dict(),
    }
    with atomic_write(folder) as unfinished:
        unfinished.mkdir()
        (unfinished / "recipe.json").write_text(recipe.model_dump_json(indent=2))
        about = {"update": update, "recipe_hash": recipe.hash, "origin": origin}
        checkpoint.save(checkpoint.path(unfinished, update), state, about=about)


def can_be_resumed(state: dict[str, Any]) -> bool:
    """Whether a checkpoint's state is of a training, or of weights alone."""
    return "batches" in part(state, "trainer")
