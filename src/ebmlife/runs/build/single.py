"""The common part of methods with one network. Each method defines how its parts are made."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from torch import nn

from ebmlife.data import Batches, Dataset
from ebmlife.distributed import Ranks
from ebmlife.recipes.options import Registry
from ebmlife.recipes.schema import Recipe
from ebmlife.runs.build.context import Context
from ebmlife.runs.build.lazy import deferred
from ebmlife.runs.build.live import Training, require_single_process, weights_of
from ebmlife.runs.build.nets import learner, make_networks, restore_weights
from ebmlife.runs.build.tables import DATA, STARTS
from ebmlife.runs.model import Model
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.rng import Streams
from ebmlife.training.base import Loop
from ebmlife.training.learner import Learner

R = TypeVar("R", bound=Recipe)


class Single(ABC, Generic[R]):
    """A method that trains one network."""

    nets: Registry
    starts: Registry = STARTS
    learner: str  # its name in the trainer's state

    @abstractmethod
    def trainer(self, recipe: R, dataset: Dataset, learned: Learner, streams: Streams) -> Loop[Any]: ...

    @abstractmethod
    def energy(self, recipe: R, net: nn.Module) -> Energy: ...

    def network(self, recipe: R, context: Context) -> nn.Module:
        (net,) = make_networks((self.nets, recipe.net), seed=recipe.seed, context=context)
        return net

    def generator(self, net: nn.Module) -> nn.Module | None:
        return None

    def for_start(self, recipe: R, net: nn.Module) -> dict[str, Any]:
        """Returns additional arguments for the kinds of start that only this method has."""
        return {}

    def resolve(self, recipe: R) -> R:
        parts = {table.field: table.resolve(getattr(recipe, table.field)) for table in (DATA, self.nets, self.starts)}
        return recipe.model_copy(update=parts)

    def training(self, recipe: R, context: Context, *, resumed: dict[str, Any] | None, ranks: Ranks) -> Training:
        require_single_process(recipe, ranks)
        dataset: Dataset = DATA.make(recipe.data)
        context = context.with_shape(dataset.shape)
        streams = Streams(recipe.seed, device=context.device)
        learned = learner(self.network(recipe, context).train(), recipe.optimizer)
        trainer = self.trainer(recipe, dataset, learned, streams)
        return Training(trainer, streams, self._model(recipe, learned.ema.eval(), lambda: dataset, context))

    def model(self, recipe: R, state: dict[str, Any], context: Context, *, averaged: bool) -> Model:
        net = self.network(recipe, context)
        restore_weights(net, weights_of(state, self.learner, averaged=averaged))
        return self._model(recipe, net, lambda: DATA.make(recipe.data), context)

    def _model(self, recipe: R, net: nn.Module, dataset: Callable[[], Dataset], context: Context) -> Model:
        generator = self.generator(net)
        own = self.for_start(recipe, net)
        start = deferred(self.starts, recipe.start, dataset, context, generator=generator, **own)
        return Model(net, self.energy(recipe, net), generator, start, recipe, context.shape, context.device)


def batches(recipe: Recipe, dataset: Dataset, *, crop: int = 0) -> Batches:
    """Returns the batches of a recipe."""
    return Batches(dataset, size=recipe.batch, seed=recipe.seed, flip=recipe.flip, crop=crop, workers=recipe.workers)
