"""Langevin sampling. This is the only Langevin loop of the package."""

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
    """What `langevin` measures on the way."""

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
    """Runs Langevin dynamics: x <- x - (step_size**2 / 2) * grad E(x) + step_size * N(0, I), `steps` times.

    Args:
        energy: Any callable from states (B, ...) to energies (B,).
        x: Initial states (B, ...). They are not modified.
        steps: Number of Langevin steps.
        step_size: Standard deviation of the noise of one step.
        noise: Returns standard normal noise of the shape of its argument, such as `seeded(7)`.
        clip: Largest length of a state's gradient term in one step; longer ones are scaled down.

    Returns:
        The final states, and an `Info` with the mean gradient magnitude.

    Raises:
        BadInput: If `steps` is negative or `step_size` is not positive.
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
    """Langevin sampling with fixed settings: all arguments of `langevin` but the energy and the states.

    Args:
        steps: Number of Langevin steps, which may follow a schedule over training updates.
        step_size: Standard deviation of the noise of one step.
        noise: As for `langevin`.
        clip: As for `langevin`.
    """

    steps: Schedule  # K in the paper
    step_size: float
    noise: Noise = torch.randn_like
    clip: float | None = None

    def __call__(self, energy: Energy, x: Tensor, *, update: int) -> tuple[Tensor, Info]:
        """Runs `langevin` with the number of steps that the schedule has at this update."""
        steps = int(scheduled(self.steps)(update))
        return langevin(energy, x, steps=steps, step_size=self.step_size, noise=self.noise, clip=self.clip)

    def with_steps(self, steps: int) -> Self:
        """Returns the same settings with another number of steps."""
        return replace(self, steps=steps)
