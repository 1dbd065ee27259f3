"""What methods with one network share. Each says how its own parts are made, and gets the rest."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from ebmlife.data import Batches, Dataset
from ebmlife.distributed import Ranks
from ebmlife.recipes.options import Registry
from ebmlife.recipes.schema import Recipe
from ebmlife.runs.build.live import Training, require_single_process, weights_of
from ebmlife.runs.build.parts import DATA, STARTS, deferred, find_device, learner, make_networks, restore_weights
from ebmlife.runs.model import Model
from ebmlife.runs.user_code import Trust
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.rng import Streams
from ebmlife.training.base import Loop
from ebmlife.training.learner import Learner

R = TypeVar("R", bound=Recipe)


class Single(ABC, Generic[R]):
    nets: Registry
    starts: Registry = STARTS
    learner: str  # what the trainer's state calls it

    @abstractmethod
    def trainer(self, recipe: R, dataset: Dataset, learned: Learner, streams: Streams) -> Loop[Any]: ...

    @abstractmethod
    def energy(self, recipe: R, net: nn.Module) -> Energy: ...

    def network(self, recipe: R, shape: tuple[int, ...], device: torch.device) -> nn.Module:
        (net,) = make_networks((self.nets, recipe.net), seed=recipe.seed, shape=shape, device=device)
        return net

    def generator(self, net: nn.Module) -> nn.Module | None:
        return None

    def for_start(self, recipe: R, net: nn.Module) -> dict[str, Any]:
        """What this method's kinds of start are provided with, beside what all are."""
        return {}

    def resolve(self, recipe: R) -> R:
        parts = {kinds.field: kinds.resolve(getattr(recipe, kinds.field)) for kinds in (DATA, self.nets, self.starts)}
        return recipe.model_copy(update=parts)

    def training(self, recipe: R, *, resumed: dict[str, Any] | None, ranks: Ranks, trust: Trust) -> Training:
        require_single_process(recipe, ranks)
        device = find_device(recipe.device)
        dataset: Dataset = DATA.make(recipe.data)
        streams = Streams(recipe.seed, device=device)
        learned = learner(self.network(recipe, dataset.shape, device).train(), recipe.optimizer)
        trainer = self.trainer(recipe, dataset, learned, streams)
        model = self._model(recipe, learned.ema.eval(), dataset.shape, device, lambda: dataset, trust)
        return Training(trainer, streams, model)

    def model(
        self,
        recipe: R,
        state: dict[str, Any],
        *,
        averaged: bool,
        shape: tuple[int, ...],
        device: torch.device,
        trust: Trust,
    ) -> Model:
        net = self.network(recipe, shape, device)
        restore_weights(net, weights_of(state, self.learner, averaged=averaged))
        return self._model(recipe, net, shape, device, lambda: DATA.make(recipe.data), trust)

    def _model(
        self,
        recipe: R,
        net: nn.Module,
        shape: tuple[int, ...],
        device: torch.device,
        dataset: Callable[[], Dataset],
        trust: Trust,
    ) -> Model:
        maker = self.generator(net)
        given = {"shape": shape, "generator": maker, "trust": trust, **self.for_start(recipe, net)}
        start = deferred(self.starts, recipe.start, dataset, **given)
        return Model(net, self.energy(recipe, net), maker, start, recipe, shape, device)


def batches(recipe: Recipe, dataset: Dataset, *, crop: int = 0) -> Batches:
    return Batches(dataset, size=recipe.batch, seed=recipe.seed, flip=recipe.flip, crop=crop, workers=recipe.workers)
