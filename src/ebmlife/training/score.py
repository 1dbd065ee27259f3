"""Denoising score matching over geometric noise levels (Song and Ermon 2019), and sampling with the score."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from ebmlife.data import Batches
from ebmlife.training.base import Loop, Report
from ebmlife.training.learner import Learner
from ebmlife.training.starts import AfterLangevin, Start, Uniform

_NODES = 16  # of the quadrature along a line


def geometric(largest: float, smallest: float, count: int) -> list[float]:
    """Returns noise levels from the largest to the smallest, each the same fraction of the one before."""
    return [float(sigma) for sigma in np.geomspace(largest, smallest, count)]


def score_loss(score: Tensor, noise: Tensor, sigma: Tensor) -> Tensor:
    """Mean over images of |sigma s(x + sigma e, sigma) + e|^2 / 2: least where s is the score of the noisy data."""
    sigma = sigma.view(-1, *[1] * (score.ndim - 1))
    return (sigma * score + noise).square().flatten(1).sum(1).mean() / 2


@dataclass(frozen=True)
class ScoreMetrics(Report):
    headline: ClassVar[str] = "loss"

    loss: float  # |sigma s + e|^2 / 2 of an image, mean over noise levels; half its number of pixels for s = 0


class ScoreTrainer(Loop[ScoreMetrics]):
    """Trains a score network by denoising.

    Args:
        batches: The data.
        score: The learner of a network (x, sigma) -> s.
        sigmas: Noise levels.
        rng: Generator of the noise and its levels.
        device: Where the network is.
    """

    stateful = ("batches", "score")

    def __init__(
        self,
        batches: Batches,
        *,
        score: Learner,
        sigmas: Sequence[float],
        rng: torch.Generator,
        device: torch.device | str = "cpu",
    ) -> None:
        self.batches, self.score, self.rng, self.device = batches, score, rng, device
        self.sigmas = torch.tensor(sigmas, device=device)

    def step(self) -> ScoreMetrics:
        """Makes one update that lowers the mean of |sigma s(x + sigma e, sigma) + e|^2 / 2."""
        data = self.batches.next().to(self.device)
        rng, device = self.rng, self.rng.device
        sigma = self.sigmas[torch.randint(len(self.sigmas), (len(data),), generator=rng, device=device)]
        noise = torch.randn(data.shape, generator=rng, device=device)
        noisy = data + sigma.view(-1, *[1] * (data.ndim - 1)) * noise
        loss = score_loss(self.score.net(noisy, sigma), noise, sigma)
        self.score.descend(loss, update=self.update)
        self.update += 1
        return ScoreMetrics(update=self.update, loss=loss.item(), data_seconds=self.batches.waited())


class ScoreEnergy(nn.Module):
    """A score at one noise level in place of an energy: `gradient` is -s(x, sigma).

    In general, a score is not the gradient of an energy. `forward` is the line integral from 0,
    E(x) = -integral over t from 0 to 1 of s(t x, sigma) . x. This is the energy up to a constant, if there is one.
    """

    conservative = False

    def __init__(self, net: nn.Module, sigma: float) -> None:
        super().__init__()
        self.net, self.sigma = net, sigma

    def score(self, x: Tensor) -> Tensor:
        s: Tensor = self.net(x, torch.full((len(x),), self.sigma, dtype=x.dtype, device=x.device))
        return s

    @torch.no_grad()
    def gradient(self, x: Tensor) -> Tensor:
        return -self.score(x)

    def curvature(self, x: Tensor, v: Tensor) -> Tensor:
        """Returns v^T J of each state, where J is the Jacobian of the drift -s, for gradients through the chain."""
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            return torch.autograd.grad(-self.score(leaf), leaf, v)[0]

    def forward(self, x: Tensor) -> Tensor:
        nodes, weights = np.polynomial.legendre.leggauss(_NODES)
        energy = torch.zeros(len(x), dtype=x.dtype, device=x.device)
        for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
            energy = energy - float(weight) * (self.score(float(node) * x) * x).flatten(1).sum(1)
        return energy


def annealed(
    net: nn.Module, sigmas: Sequence[float], shape: tuple[int, ...], *, steps: int = 20, relative_step: float = 0.4
) -> Start:
    """Returns noise after annealed Langevin sampling: chains on the score of each level, from the largest noise to the
    smallest, with step size relative_step * sigma. In NCSN, relative_step is sqrt(epsilon) / smallest sigma."""
    start: Start = Uniform(shape)
    for sigma in sigmas:
        start = AfterLangevin(start, ScoreEnergy(net, sigma), steps=steps, step_size=relative_step * sigma)
    return start
