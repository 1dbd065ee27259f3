"""What a run takes of another one: its model, its generator's weights, its energy as a prior."""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ebmlife import recipes
from ebmlife.errors import BadInput
from ebmlife.recipes.schema import EBMRecipe, Part, as_ebm
from ebmlife.runs import locate
from ebmlife.runs.build.parts import NETS, of_image
from ebmlife.runs.model import Model
from ebmlife.runs.prior import FixedPrior, restored
from ebmlife.runs.user_code import Trust
from ebmlife.storage import checkpoint, regular


def other_model(field: str, run: str, *, trust: Trust, instead: str = "") -> Model:
    """The model of the run that a field names; `instead`: what else can be done where there is none."""
    from ebmlife.runs.build import load  # of the package around: a run may name another

    if checkpoint.choose(locate.find(run), None) is None:
        raise BadInput(f"{field} {run} holds no checkpoint; make it first: {_command(run)}{instead}")
    return load(run, trust_code=trust)


def _command(run: str) -> str:
    """That makes it, as far as its name tells."""
    name = Path(run).name
    if name in recipes.names():
        return f"ebmlife train {name} --out {run}"
    if name.startswith("biggan-deep-"):  # trained by others
        return f"ebmlife import {name}-pytorch_model.bin --out {run} (docs/weights.md says where it is from)"
    return f"ebmlife train RECIPE --out {run}"


def other_generator(origin: str, *, trust: Trust) -> dict[str, Tensor]:
    """The weights of another run's generator, or those in a file."""
    if origin.endswith(".safetensors"):
        try:
            weights: dict[str, Tensor] = load_file(regular.check(Path(origin).expanduser()))
            return weights
        except (OSError, SafetensorError) as error:
            raise BadInput(f"generator.run {origin}: cannot be read as safetensors ({error})") from error
    instead = "; or begin with data: --start.kind data --generator none"
    other = other_model("generator.run", origin, trust=trust, instead=instead).generator
    if other is None:
        raise BadInput(f"generator.run {origin} has no generator; name a run that has one")
    return other.state_dict()


def find_prior(
    recipe: EBMRecipe, shape: tuple[int, ...], device: torch.device, saved: dict[str, Any] | None, *, trust: Trust
) -> FixedPrior | None:
    """The averaged energy of the run that the recipe names as its prior, or what a checkpoint saved of it."""
    if recipe.prior is None:
        return None
    if saved is not None and saved["recipe"].get("prior") == recipe.prior.model_dump(mode="json"):
        return restored_prior(saved, shape, device)
    model = other_model("prior.run", recipe.prior.run, trust=trust)
    if model.prior is not None:
        raise BadInput(f"prior.run {recipe.prior.run} has a prior of its own; name a run without one")
    if model.shape != shape:
        raise BadInput(f"prior.run {recipe.prior.run} is of states {model.shape}, and the data are {shape}")
    temperature = recipe.prior.temperature or as_ebm(model.recipe).temperature
    return FixedPrior(model.net.to(device), model.recipe.net, temperature)


def restored_prior(state: dict[str, Any], shape: tuple[int, ...], device: torch.device) -> FixedPrior | None:
    def make(chosen: Part) -> nn.Module:
        net: nn.Module = NETS.make(chosen, **of_image(shape)).to(device)
        return net

    return restored(state.get("prior"), make)  # older checkpoints know of none
