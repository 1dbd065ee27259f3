"""Unadjusted Langevin dynamics."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ebmlife.sampling.energy import Energy, gradient
from ebmlife.sampling.kernels.interface import Info, State, check_step_size, lengths, per_chain, shorten
from ebmlife.sampling.rng import Noise


@dataclass
class LangevinState(State):
    """States of Langevin chains."""

    x: Tensor


@dataclass(frozen=True)
class Langevin:
    """Langevin dynamics: x <- x - (step_size**2 / 2) * grad E(x) + step_size * N(0, I).

    The step size biases it: for a Gaussian of variance s^2, the chains have variance s^2 / (1 - step_size^2 / (4 s^2)).
    It needs only a gradient, so it is the only kernel for scores. The states are updated in place.

    Args:
        step_size: Standard deviation of the noise of one step.
        clip: Largest length of a state's gradient term in one step; longer ones are scaled down.
    """

    step_size: float  # eta in eq. (3) of the paper, "Langevin epsilon" in its tables
    clip: float | None = None

    def __post_init__(self) -> None:
        check_step_size("langevin", self.step_size)

    def init(self, energy: Energy, x: Tensor, noise: Noise) -> LangevinState:
        return LangevinState(x.detach().clone(memory_format=torch.contiguous_format))

    def step(self, energy: Energy, state: LangevinState, noise: Noise) -> tuple[LangevinState, Info]:
        x = state.x
        grad = gradient(energy, x)
        norms = lengths(grad)
        if self.clip is not None:
            grad = grad * per_chain(shorten(norms, to=2 * self.clip / self.step_size**2), x)
        x.sub_(grad, alpha=self.step_size**2 / 2).add_(noise(x), alpha=self.step_size)
        return state, Info(gradient=norms.mean())

    def report(self, state: LangevinState) -> dict[str, Any]:
        return {"step_size": self.step_size}

    def settings(self) -> dict[str, Any]:
        return {"kind": "langevin", **asdict(self)}
