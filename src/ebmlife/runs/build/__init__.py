"""Recipe -> live objects: the only place where names become classes.

Each method has a module here with three functions, or an object with them: `resolve` completes a recipe, `training`
makes everything that a run needs, and `model` makes a trained model from a checkpoint. The kinds of parts are in
`tables`.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from ebmlife.distributed import SINGLE_PROCESS, Ranks
from ebmlife.errors import BadInput
from ebmlife.recipes.schema import EBMRecipe, Recipe, as_ebm, validate
from ebmlife.runs import locate
from ebmlife.runs.build import ebm, gan
from ebmlife.runs.build.classifier import Classifier
from ebmlife.runs.build.context import Context
from ebmlife.runs.build.device import find_device
from ebmlife.runs.build.ebm import energy_of, self_contained
from ebmlife.runs.build.flow import Flow
from ebmlife.runs.build.live import Training, scope
from ebmlife.runs.build.nets import fit_weights
from ebmlife.runs.build.recovery import Recovery
from ebmlife.runs.build.score import Score
from ebmlife.runs.build.splits import test_part
from ebmlife.runs.build.tables import (
    CHAINS,
    DATA,
    GENERATORS,
    NETS,
    STARTS,
    bank_sizes,
    burn_in_walks,
    declared,
    describe,
)
from ebmlife.runs.model import Model
from ebmlife.runs.user_code import NOTHING, Trust
from ebmlife.storage import checkpoint
from ebmlife.storage.contents import part

__all__ = [
    "CHAINS",
    "DATA",
    "GENERATORS",
    "NETS",
    "STARTS",
    "Training",
    "bank_sizes",
    "burn_in_walks",
    "declared",
    "describe",
    "energy_of",
    "find_device",
    "fit_weights",
    "load",
    "networks",
    "resolve",
    "scope",
    "self_contained",
    "shape_of",
    "test_part",
    "training",
]


class _Method(Protocol):
    def resolve(self, recipe: Any) -> Recipe: ...
    def training(self, recipe: Any, context: Context, *, resumed: dict[str, Any] | None, ranks: Ranks) -> Training: ...
    def model(self, recipe: Any, state: dict[str, Any], context: Context, *, averaged: bool) -> Model: ...


_METHODS: dict[str, _Method] = {
    "ebm": ebm,
    "gan": gan,
    "classifier": Classifier(),
    "score": Score(),
    "flow": Flow(),
    "recovery": Recovery(),
}


def resolve(recipe: Recipe) -> Recipe:
    """Returns the recipe with the options of every part checked and complete, as it is shown, saved and hashed."""
    return _METHODS[recipe.method].resolve(recipe)


def training(
    recipe: Recipe, *, resumed: dict[str, Any] | None = None, ranks: Ranks = SINGLE_PROCESS, trust: Trust = NOTHING
) -> Training:
    """Makes everything that a run needs, or one rank's share of it.

    Args:
        recipe: The recipe, resolved.
        resumed: The checkpoint that weights will come from. None: they come from the seed, or from other runs.
        ranks: The processes that share the work.
        trust: The functions that the recipe, or a run that it names, may call.

    Returns:
        The training, at its first update.
    """
    context = Context(load, find_device(recipe.device), trust)
    return _METHODS[recipe.method].training(recipe, context, resumed=resumed, ranks=ranks)


def networks(
    recipe: EBMRecipe, shape: tuple[int, ...], device: torch.device, *, trust: Trust = NOTHING
) -> tuple[nn.Module, nn.Module | None]:
    """Returns the energy and the generator of a recipe, in eval mode, for states of this shape."""
    return ebm.networks(recipe, Context(load, device, trust, shape))


def load(
    run: str | Path,
    *,
    update: int | None = None,
    averaged: bool = True,
    device: str = "auto",
    evaluation_temperature: float = 1.0,
    trust_code: str | Iterable[str] | Trust = (),
) -> Model:
    """Loads the model of a run.

    Args:
        run: Folder of the run, 'zoo:NAME' for a model that comes with the package, or 'hf:user/model' for one on the
            Hugging Face hub.
        update: Update of the checkpoint. None: the newest.
        averaged: Whether the averaged weights are loaded, or the raw ones.
        device: Name of the device. "auto": a GPU if there is one, else the CPU.
        evaluation_temperature: Divides the learned energy and its prior, but not the Gaussian term. The paper's authors
            sample their longrun models at 1.005 and 1.01.
        trust_code: Names of functions ('package.module:function') that the model may call. A model whose generator is
            a user function contains its name. The function is called only if its name is repeated here.

    Returns:
        The model.
    """
    trust, folder = Trust.of(trust_code), locate.find(run, update=update)
    at = checkpoint.choose(folder, update)
    if at is None:
        raise BadInput(f"{folder} holds no checkpoint; expected the folder of a run, as `ebmlife train --out` makes it")
    if not evaluation_temperature > 0:
        raise BadInput(f"the evaluation temperature must be above 0, got {evaluation_temperature}")
    state, _ = checkpoint.load(checkpoint.path(folder, at))
    try:
        recipe, shape = resolve(validate(part(state, "recipe"))), shape_of(state)
        context = Context(load, find_device(device), trust, shape)
        model = _METHODS[recipe.method].model(recipe, state, context, averaged=averaged)
        return model if evaluation_temperature == 1 else _tempered(model, evaluation_temperature)
    except BadInput as error:
        raise BadInput(f"{folder}: {error}") from error


def shape_of(state: dict[str, Any]) -> tuple[int, ...]:
    """Returns the shape of a model's states, from its checkpoint."""
    saved = state.get("shape")
    if not isinstance(saved, list) or not saved or not all(type(n) is int and 0 < n < 2**31 for n in saved):
        raise BadInput(f"the checkpoint has {saved!r:.40} as the shape of a state; expected a list of whole numbers")
    return tuple(saved)


def _tempered(model: Model, temperature: float) -> Model:
    return replace(model, energy=energy_of(model.net, as_ebm(model.recipe), model.prior, temperature))
