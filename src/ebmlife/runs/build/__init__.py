"""Recipe -> live objects: the only place where names become classes.

Each method has a module here with three functions, or an object with them: `resolve` completes a recipe, `training`
makes all that a run needs, `model` makes a trained model of a run's state. The kinds of parts are in `parts`.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch

from ebmlife.distributed import SINGLE_PROCESS, Ranks
from ebmlife.errors import BadInput
from ebmlife.recipes.schema import Recipe, as_ebm, validate
from ebmlife.runs import locate
from ebmlife.runs.build import ebm, gan
from ebmlife.runs.build.classifier import Classifier
from ebmlife.runs.build.ebm import energy_of, networks, self_contained
from ebmlife.runs.build.flow import Flow
from ebmlife.runs.build.live import Training, scope
from ebmlife.runs.build.parts import CHAINS, DATA, GENERATORS, NETS, STARTS, find_device, fit_weights
from ebmlife.runs.build.recovery import Recovery
from ebmlife.runs.build.score import Score
from ebmlife.runs.build.splits import test_part
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
    def training(self, recipe: Any, *, resumed: dict[str, Any] | None, ranks: Ranks, trust: Trust) -> Training: ...
    def model(
        self,
        recipe: Any,
        state: dict[str, Any],
        *,
        averaged: bool,
        shape: tuple[int, ...],
        device: torch.device,
        trust: Trust,
    ) -> Model: ...


_METHODS: dict[str, _Method] = {
    "ebm": ebm,
    "gan": gan,
    "classifier": Classifier(),
    "score": Score(),
    "flow": Flow(),
    "recovery": Recovery(),
}


def resolve(recipe: Recipe) -> Recipe:
    """The recipe with every part's options checked and complete: what is shown, saved and hashed."""
    return _METHODS[recipe.method].resolve(recipe)


def training(
    recipe: Recipe, *, resumed: dict[str, Any] | None = None, ranks: Ranks = SINGLE_PROCESS, trust: Trust = NOTHING
) -> Training:
    """All that a run needs, or a rank's share of it; `resumed`: the checkpoint that weights will come from, instead of
    from other runs; `trust`: the functions that the recipe, or a run that it names, may call."""
    return _METHODS[recipe.method].training(recipe, resumed=resumed, ranks=ranks, trust=trust)


def load(
    run: str | Path,
    *,
    update: int | None = None,
    averaged: bool = True,
    device: str = "auto",
    evaluation_temperature: float = 1.0,
    trust_code: str | Iterable[str] | Trust = (),
) -> Model:
    """The model of a run, at its newest checkpoint or the one of an update; `averaged=False`: the raw weights.

    `run` is its folder, 'zoo:NAME' for one that comes with the package, or 'hf:user/model' for one on the hub.
    `evaluation_temperature` divides the learned energy and its prior, but not the Gaussian term: 1.005 and 1.01 are
    what the paper's authors sample their longrun models at. A model may name a function of its maker's as its
    generator; it is called only if `trust_code` repeats that name ('package.module:function').
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
        make = _METHODS[recipe.method].model
        model = make(recipe, state, averaged=averaged, shape=shape, device=find_device(device), trust=trust)
        return model if evaluation_temperature == 1 else _tempered(model, evaluation_temperature)
    except BadInput as error:
        raise BadInput(f"{folder}: {error}") from error


def shape_of(state: dict[str, Any]) -> tuple[int, ...]:
    """Of a model's states, as a checkpoint has it."""
    saved = state.get("shape")
    if not isinstance(saved, list) or not saved or not all(type(n) is int and 0 < n < 2**31 for n in saved):
        raise BadInput(f"the checkpoint's shape of a state is {saved!r:.40}")
    return tuple(saved)


def _tempered(model: Model, temperature: float) -> Model:
    return replace(model, energy=energy_of(model.net, as_ebm(model.recipe), model.prior, temperature))
