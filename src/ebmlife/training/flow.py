"""Normalizing flows by exact maximum likelihood of dequantized images."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ebmlife.data import Batches
from ebmlife.training.base import Loop, Report
from ebmlife.training.learner import Learner


def dequantized(x: Tensor, levels: int, rng: torch.Generator) -> Tensor:
    """Returns images with every value spread uniformly over the bin of its gray level.

    A density could be arbitrarily high on the discrete values themselves. On bins it bounds their probability.
    """
    width = 2 / (levels - 1)
    return x + width * (torch.rand(x.shape, generator=rng, device=rng.device) - 0.5)


def bits(energy: Tensor, *, levels: int, pixels: int) -> Tensor:
    """-log2 of the probability of an image's bins, per pixel: (E(x) - pixels log(bin width)) / (pixels log 2)."""
    return energy / (pixels * math.log(2)) - math.log2(2 / (levels - 1))


@dataclass(frozen=True)
class FlowMetrics(Report):
    """The metrics of one update of a flow."""

    headline: ClassVar[str] = "bits_per_pixel"

    bits_per_pixel: float


class FlowTrainer(Loop[FlowMetrics]):
    """Trains a normalizing flow.

    Args:
        batches: The data.
        flow: The learner of a network x -> -log density.
        levels: Number of gray levels of the data.
        rng: Generator of the dequantization.
        device: Where the network is.
    """

    stateful = ("batches", "flow")

    def __init__(
        self,
        batches: Batches,
        *,
        flow: Learner,
        levels: int,
        rng: torch.Generator,
        device: torch.device | str = "cpu",
    ) -> None:
        self.batches, self.flow, self.levels, self.rng, self.device = batches, flow, levels, rng, device

    def step(self) -> FlowMetrics:
        """Makes one update that lowers the mean bits per pixel."""
        data = dequantized(self.batches.next().to(self.device), self.levels, self.rng)
        loss = bits(self.flow.net(data), levels=self.levels, pixels=data[0].numel()).mean()
        self.flow.descend(loss, update=self.update)
        self.update += 1
        return FlowMetrics(update=self.update, bits_per_pixel=loss.item(), data_seconds=self.batches.waited())
