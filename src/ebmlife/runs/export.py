"""Writes networks without their training state, as the folder of a run that can be loaded but not resumed."""

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
    origin: str,
) -> None:
    """Writes a new folder that `build.load` reads: recipe.json and one checkpoint of averaged weights.

    Args:
        folder: The new folder.
        recipe: The recipe of the networks.
        net: The network of the energy.
        generator: The generator, or None.
        prior: The fixed part of the energy, or None.
        shape: Shape of a state, such as (C, H, W).
        update: The number of updates that the weights were trained for.
        origin: Where the weights come from, for the manifest.

    Raises:
        BadInput: The folder exists.
    """
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
    """Whether a state is that of a training, and not of weights only."""
    return "batches" in part(state, "trainer")
