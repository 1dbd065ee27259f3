"""Parts that a run takes from another run: its model, its generator's weights, or its energy as a prior."""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ebmlife import recipes
from ebmlife.errors import BadInput
from ebmlife.recipes.schema import EBMRecipe, Part, as_ebm
from ebmlife.runs import locate
from ebmlife.runs.build.context import Context
from ebmlife.runs.build.nets import image_options
from ebmlife.runs.build.tables import NETS
from ebmlife.runs.model import Model
from ebmlife.runs.prior import FixedPrior, restored
from ebmlife.storage import checkpoint, regular


def other_model(field: str, run: str, context: Context, *, instead: str = "") -> Model:
    """Returns the model of the run that a field names; errors name the alternative `instead`."""
    if checkpoint.choose(locate.find(run), None) is None:
        raise BadInput(f"{field} {run} holds no checkpoint; make it first: {_command(run)}{instead}")
    return context.other(run)


def _command(run: str) -> str:
    """Returns the command that creates a run, as far as its name determines it."""
    name = Path(run).name
    if name in recipes.names():
        return f"ebmlife train {name} --out {run}"
    if name.startswith("biggan-deep-"):  # published by others
        return f"ebmlife import {name}-pytorch_model.bin --out {run} (docs/weights.md names the source)"
    return f"ebmlife train RECIPE --out {run}"


def other_generator(origin: str, context: Context) -> dict[str, Tensor]:
    """Returns the weights of another run's generator, or those in a .safetensors file."""
    if origin.endswith(".safetensors"):
        try:
            weights: dict[str, Tensor] = load_file(regular.check(Path(origin).expanduser()))
            return weights
        except (OSError, SafetensorError) as error:
            raise BadInput(f"generator.run {origin}: cannot be read as safetensors ({error})") from error
    instead = "; or start chains from data: --start.kind data --generator none"
    other = other_model("generator.run", origin, context, instead=instead).generator
    if other is None:
        raise BadInput(f"generator.run {origin} has no generator; name a run that has one")
    return other.state_dict()


def find_prior(recipe: EBMRecipe, context: Context, saved: dict[str, Any] | None) -> FixedPrior | None:
    """Returns the averaged energy of the run that the recipe names as its prior, or the prior in a saved checkpoint."""
    if recipe.prior is None:
        return None
    if saved is not None and saved["recipe"].get("prior") == recipe.prior.model_dump(mode="json"):
        return restored_prior(saved, context)
    model = other_model("prior.run", recipe.prior.run, context)
    if model.prior is not None:
        raise BadInput(f"prior.run {recipe.prior.run} has a prior of its own; name a run without one")
    if model.shape != context.shape:
        raise BadInput(
            f"prior.run {recipe.prior.run} has states of shape {model.shape}, and the data have {context.shape}"
        )
    temperature = recipe.prior.temperature or as_ebm(model.recipe).temperature
    return FixedPrior(model.net.to(context.device), model.recipe.net, temperature)


def restored_prior(state: dict[str, Any], context: Context) -> FixedPrior | None:
    """Returns the prior in a checkpoint."""

    def make(chosen: Part) -> nn.Module:
        net: nn.Module = NETS.make(chosen, **image_options(context.shape)).to(context.device)
        return net

    return restored(state.get("prior"), make)  # older checkpoints have no such entry
