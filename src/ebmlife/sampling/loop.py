"""The Langevin loop. There is no second one anywhere."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from ebmlife.errors import BadInput
from ebmlife.sampling.energy import Energy, frozen, gradient
from ebmlife.sampling.rng import Noise
from ebmlife.sampling.schedule import Schedule, scheduled


@dataclass(frozen=True)
class Info:
    gradient: Tensor  # (): mean over chains and steps of |grad E(x)|; 0 for no steps


def langevin(
    energy: Energy,
    x: Tensor,
    *,
    steps: int,
    step_size: float,  # eta in eq. (3) of the paper, "Langevin epsilon" in its tables
    noise: Noise = torch.randn_like,
    clip: float | None = None,
) -> tuple[Tensor, Info]:
    """x <- x - (step_size**2 / 2) * grad E(x) + step_size * N(0, I), `steps` times.

    With `clip`, the gradient's part of a step is shortened to this length per state where it is longer.
    """
    if steps < 0 or not step_size > 0:
        raise BadInput(f"langevin needs steps of at least 0 and a step_size above 0, got {steps} and {step_size}")
    x = x.detach().clone(memory_format=torch.contiguous_format)
    magnitude = torch.zeros((), device=x.device)
    with frozen(energy):
        for _ in range(steps):
            grad = gradient(energy, x)
            lengths = grad.reshape(len(x), -1).norm(dim=1)
            magnitude += lengths.mean()
            if clip is not None:
                grad = grad * _shorten(lengths, to=2 * clip / step_size**2).view(-1, *[1] * (x.ndim - 1))
            x.sub_(grad, alpha=step_size**2 / 2).add_(noise(x), alpha=step_size)
    return x, Info(gradient=magnitude / max(steps, 1))


def _shorten(lengths: Tensor, *, to: float) -> Tensor:
    return (to / lengths.clamp_min(torch.finfo(lengths.dtype).tiny)).clamp_max(1)


@dataclass(frozen=True)
class Walk:
    """How chains walk during training: `langevin` with all but the energy and the states settled."""

    steps: Schedule  # K in the paper
    step_size: float
    noise: Noise = torch.randn_like
    clip: float | None = None

    def __call__(self, energy: Energy, x: Tensor, *, update: int) -> tuple[Tensor, Info]:
        steps = int(scheduled(self.steps)(update))
        return langevin(energy, x, steps=steps, step_size=self.step_size, noise=self.noise, clip=self.clip)

    def with_steps(self, steps: int) -> Self:
        return replace(self, steps=steps)
