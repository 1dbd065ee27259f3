"""The Metropolis test, and the adaptation of step sizes during a warm-up."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ebmlife.errors import BadInput, Diverged
from ebmlife.sampling.energy import Energy, energy_and_gradient, frozen
from ebmlife.sampling.kernels.interface import per_chain
from ebmlife.sampling.rng import Noise

WARM_UP = 500  # steps; then the step size is fixed, and the kernel leaves its target invariant
_DECAY = 0.6  # of the adaptation's gain, (step + 1)^-0.6: between 0.5 and 1, so that it converges (Robbins and Monro)


@dataclass(frozen=True)
class Point:
    """States (B, ...) with their energies (B,) and gradients (B, ...)."""

    x: Tensor
    energy: Tensor
    gradient: Tensor


def first_point(energy: Energy, x: Tensor) -> Point:
    """Returns the start of chains with its energies, which must be finite."""
    with frozen(energy):
        value, grad = energy_and_gradient(energy, x)
    if value.shape != x.shape[:1]:
        raise BadInput(f"the energy of states {tuple(x.shape)} must have shape ({len(x)},), got {tuple(value.shape)}")
    if not value.isfinite().all():
        raise Diverged("the energy of an initial state is not finite")
    return Point(x, value, grad)


def evaluate(energy: Energy, x: Tensor) -> Point:
    """Returns proposed states with their energies. NaN and -inf raise Diverged; +inf is a state of probability 0."""
    value, grad = energy_and_gradient(energy, x)
    if not (value > -torch.inf).all():  # false for NaN too
        raise Diverged("the energy of a proposed state is NaN or -inf")
    return Point(x, value, grad)


def metropolis(log_ratio: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
    """Returns which proposals are accepted (B,), and their probabilities min(1, exp(log_ratio)).

    The uniform number of the test is Phi(z) of a normal z, so that `noise` is the only source of randomness.
    """
    if log_ratio.isnan().any():
        raise Diverged("the acceptance probability of a proposed state is NaN")
    accepted = torch.special.log_ndtr(noise(log_ratio)) < log_ratio
    return accepted, log_ratio.clamp_max(0).exp()


def select(accepted: Tensor, proposed: Point, current: Point) -> Point:
    """Returns the proposed states where accepted, and else the current ones, unchanged."""
    wide = per_chain(accepted, current.x)
    return Point(
        torch.where(wide, proposed.x, current.x),
        torch.where(accepted, proposed.energy, current.energy),
        torch.where(wide, proposed.gradient, current.gradient),
    )


def adapt(log_value: Tensor, rate: Tensor, *, target: float, step: int) -> Tensor:
    """Returns log_value + (step + 1)^-0.6 (rate - target) / (1 - target): it grows while the rate is above the target.

    The divisor makes it grow equally fast for all targets while everything is accepted.
    """
    gain: float = (step + 1) ** -_DECAY
    return log_value + gain * (rate - target) / (1 - target)


def check_adaptation(kernel: str, target: float, warm_up: int) -> None:
    """Raises BadInput for impossible settings of a warm-up."""
    if not 0 < target < 1 or warm_up < 0:
        raise BadInput(
            f"{kernel} needs a target acceptance between 0 and 1 and a warm_up of at least 0 steps, "
            f"got {target} and {warm_up}"
        )
