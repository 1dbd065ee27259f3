"""Recipe -> live objects: the only place where names become classes.

Each method has a module here with three functions, or an object with them: `resolve` completes a recipe, `training`
makes all that a run needs, `model` makes a trained model of a run's state. The kinds of parts are in `parts`.
"""

from pathlib import Path
from typing import Any, Protocol

import torch

from ebmlife import checkpoint
from ebmlife.build import ebm, gan
from ebmlife.build.classifier import Classifier
from ebmlife.build.ebm import networks
from ebmlife.build.flow import Flow
from ebmlife.build.parts import CHAINS, DATA, GENERATORS, NETS, STARTS, find_device
from ebmlife.build.recovery import Recovery
from ebmlife.build.score import Score
from ebmlife.build.training import Training
from ebmlife.errors import BadInput
from ebmlife.model import Model
from ebmlife.recipe import Recipe, validate

__all__ = [
    "CHAINS",
    "DATA",
    "GENERATORS",
    "NETS",
    "STARTS",
    "Training",
    "find_device",
    "load",
    "networks",
    "resolve",
    "training",
]


class _Method(Protocol):
    def resolve(self, recipe: Any) -> Recipe: ...
    def training(self, recipe: Any, *, resumed: bool) -> Training: ...
    def model(
        self, recipe: Any, state: dict[str, Any], *, averaged: bool, shape: tuple[int, ...], device: torch.device
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


def training(recipe: Recipe, *, resumed: bool = False) -> Training:
    """All that a run needs; `resumed`: the weights will come from its own checkpoint, not from another run."""
    return _METHODS[recipe.method].training(recipe, resumed=resumed)


def load(run: str | Path, *, update: int | None = None, averaged: bool = True, device: str = "auto") -> Model:
    """The model of a run, at its newest checkpoint or the one of an update; `averaged=False`: the raw weights."""
    folder = Path(run)
    at = checkpoint.choose(folder, update)
    if at is None:
        raise BadInput(f"{folder} holds no checkpoint; expected the folder of a run, as `ebmlife train --out` makes it")
    state, _ = checkpoint.load(checkpoint.path(folder, at))
    recipe, shape = resolve(validate(state["recipe"])), tuple(state["shape"])
    make = _METHODS[recipe.method].model
    try:
        return make(recipe, state, averaged=averaged, shape=shape, device=find_device(device))
    except BadInput as error:
        raise BadInput(f"{folder}: {error}") from error
