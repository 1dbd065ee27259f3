"""Starts that are made when they are first used."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ebmlife.data import Dataset
from ebmlife.recipes.options import Registry
from ebmlife.recipes.sections import Part
from ebmlife.runs.build.context import Context
from ebmlife.training.starts import InitialStates, Start


class Deferred:
    """A start that is made when it is first used, because its data are needed only then."""

    def __init__(self, make: Callable[[], Start]) -> None:
        self._make = make
        self._start: Start | None = None

    def __call__(self, n: int, *, rng: torch.Generator, old: Tensor | None = None) -> InitialStates:
        self._start = self._start or self._make()
        return self._start(n, rng=rng, old=old)


def deferred(
    starts: Registry, chosen: Part, dataset: Callable[[], Dataset], context: Context, **provided: Any
) -> Start:
    """Returns the start that a recipe chooses; its data set is read only if this kind of start has one."""

    def make() -> Start:
        data = dataset() if starts.accepts(chosen, "dataset") else None
        return make_start(starts, chosen, data, context, **provided)

    return Deferred(make)


def make_start(starts: Registry, chosen: Part, dataset: Dataset | None, context: Context, **provided: Any) -> Start:
    """Returns the start that a recipe chooses."""
    start: Start = starts.make(
        chosen, dataset=dataset, shape=context.shape, load=context.load, trust=context.trust, **provided
    )
    return start
