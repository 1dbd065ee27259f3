"""The sampling loop. It is the only one of the package: what a step does is up to the kernel."""

from dataclasses import dataclass, replace
from typing import Self, TypeVar

import torch
from torch import Tensor

from ebmlife.errors import BadInput
from ebmlife.sampling.energy import Energy, frozen
from ebmlife.sampling.kernels import Info, Kernel, Langevin, make_kernel
from ebmlife.sampling.kernels.interface import HasStates
from ebmlife.sampling.rng import Noise
from ebmlife.sampling.schedule import Schedule, scheduled

__all__ = ["Info", "Walk", "langevin", "run_kernel", "sample"]
S = TypeVar("S", bound=HasStates)


def run_kernel(
    kernel: Kernel[S], energy: Energy, state: S, *, steps: int, noise: Noise = torch.randn_like
) -> tuple[S, Info]:
    """Runs `steps` steps of a kernel.

    A walk in several calls gives the same bits as one in a single call if `noise` continues its sequence.

    Args:
        kernel: `Langevin`, `MALA`, `Underdamped`, `ReplicaExchange` or an object like them.
        energy: Any callable from states (B, ...) to energies (B,).
        state: The state that `kernel.init(energy, x, noise)` or an earlier call returned. Its tensors may be reused.
        steps: Number of steps.
        noise: Returns standard normal noise of the shape of its argument, such as `seeded(7)`.

    Returns:
        The state after the last step, whose `x` are the states of the chains, and an `Info` with means over the steps.

    Raises:
        BadInput: If `steps` is negative.
        Diverged: If an energy that a Metropolis test needs is NaN.
    """
    if steps < 0:
        raise BadInput(f"the number of steps must not be negative, got {steps}")
    mean = _Mean(state.x.device)
    with frozen(energy):
        for _ in range(steps):
            state, info = kernel.step(energy, state, noise)
            mean.add(info)
    return state, mean.info(steps)


class _Mean:
    """The mean of `Info` over the steps of a loop."""

    def __init__(self, device: torch.device) -> None:
        self.gradient = torch.zeros((), device=device)
        self.acceptance: Tensor | None = None
        self.swaps: Tensor | None = None

    def add(self, info: Info) -> None:
        self.gradient += info.gradient
        if info.acceptance is not None:
            self.acceptance = info.acceptance if self.acceptance is None else self.acceptance + info.acceptance
        if info.swaps is not None:
            self.swaps = info.swaps if self.swaps is None else self.swaps + info.swaps

    def info(self, steps: int) -> Info:
        divide = max(steps, 1)
        acceptance = None if self.acceptance is None else self.acceptance / divide
        return Info(self.gradient / divide, acceptance, None if self.swaps is None else self.swaps / divide)


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
    kernel = Langevin(step_size, clip)
    state, info = run_kernel(kernel, energy, kernel.init(energy, x, noise), steps=steps, noise=noise)
    return state.x, info


def sample(
    sampler: str,
    energy: Energy,
    x: Tensor,
    *,
    steps: int,
    step_size: float,
    noise: Noise = torch.randn_like,
    clip: float | None = None,
    warm_up: int = 0,
) -> tuple[Tensor, Info]:
    """Runs the kernel of a name from the states x. With "langevin" it is `langevin`, to the bit.

    Args:
        sampler: One of `ebmlife.sampling.kernels.SAMPLERS`.
        energy: As for `langevin`.
        x: As for `langevin`.
        steps: As for `langevin`.
        step_size: As for `langevin`; the initial value if there is a warm-up.
        noise: As for `langevin`.
        clip: As for `langevin`.
        warm_up: Number of steps, within `steps`, in which step sizes and temperatures are adapted.

    Returns:
        The final states, and an `Info` with means over the steps.

    Raises:
        BadInput: If a setting is out of range, or the sampler needs an energy and this is a score.
        Diverged: If an energy that a Metropolis test needs is NaN.
    """
    if sampler == "langevin":
        return langevin(energy, x, steps=steps, step_size=step_size, noise=noise, clip=clip)
    kernel = make_kernel(sampler, energy, step_size=step_size, clip=clip, warm_up=warm_up)
    state, info = run_kernel(kernel, energy, kernel.init(energy, x, noise), steps=steps, noise=noise)
    return state.x, info


@dataclass(frozen=True)
class Walk:
    """Sampling with fixed settings: all arguments of `sample` but the energy and the states.

    Args:
        steps: Number of Langevin steps, which may follow a schedule over training updates.
        step_size: Standard deviation of the noise of one step.
        noise: As for `langevin`.
        clip: As for `langevin`.
        sampler: As for `sample`. There is no warm-up: walks in training are short, and their step size is fixed.
    """

    steps: Schedule  # K in the paper
    step_size: float
    noise: Noise = torch.randn_like
    clip: float | None = None
    sampler: str = "langevin"

    def __call__(self, energy: Energy, x: Tensor, *, update: int) -> tuple[Tensor, Info]:
        """Runs `sample` with the number of steps that the schedule has at this update."""
        steps = int(scheduled(self.steps)(update))
        return sample(self.sampler, energy, x, steps=steps, step_size=self.step_size, noise=self.noise, clip=self.clip)

    def with_steps(self, steps: int) -> Self:
        """Returns the same settings with another number of steps."""
        return replace(self, steps=steps)
