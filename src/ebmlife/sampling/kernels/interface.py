"""What all sampling kernels share: their interface, their state, and what they measure."""

from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from ebmlife.errors import BadInput
from ebmlife.sampling.energy import Energy, is_energy
from ebmlife.sampling.rng import Noise
from ebmlife.storage import contents


@dataclass(frozen=True)
class Info:
    """What a kernel measures in one step, or on average over the steps of a loop.

    Attributes:
        gradient: Mean over chains of |grad E(x)| at the start of a step (); 0 for no steps.
        acceptance: Acceptance probability of each chain (B,); None for kernels without a Metropolis test.
        swaps: Mean over chains of the swap probability of neighboring temperatures (R - 1,); None without replicas.
    """

    gradient: Tensor
    acceptance: Tensor | None = None
    swaps: Tensor | None = None


class State:
    """The state of a kernel: a dataclass of tensors that holds all that the next step depends on, except the noise."""

    def state_dict(self) -> dict[str, Tensor]:
        """Returns copies of the tensors, by name."""
        return {field.name: getattr(self, field.name).clone() for field in fields(self)}  # type: ignore[arg-type]

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Restores what `state_dict` returned, and raises BadInput if names, shapes or dtypes differ."""
        like = self.state_dict()
        if wrong := contents.mismatch(saved, like):
            raise BadInput(f"the saved state of a sampler does not fit: {wrong}")
        for name, value in like.items():
            setattr(self, name, saved[name].to(value.device, copy=True))


class HasStates(Protocol):
    """A kernel's state as loops see it."""

    @property
    def x(self) -> Tensor:
        """The states (B, ...) of the chains."""
        ...

    def state_dict(self) -> dict[str, Tensor]: ...
    def load_state_dict(self, saved: dict[str, Any]) -> None: ...


S = TypeVar("S", bound=HasStates)


class Kernel(Protocol[S]):
    """One step of a Markov chain. All randomness comes from the argument `noise`."""

    def init(self, energy: Energy, x: Tensor, noise: Noise) -> S:
        """Returns the state of chains that start at x (B, ...), which is copied."""
        ...

    def step(self, energy: Energy, state: S, noise: Noise) -> tuple[S, Info]:
        """Returns the next state, and what was measured. The tensors of the old state may be reused."""
        ...

    def report(self, state: S) -> dict[str, Any]:
        """Returns numbers for people: the step size in use, the acceptance rate, swap rates."""
        ...

    def settings(self) -> dict[str, Any]:
        """Returns what identifies the kernel, for records and checkpoints."""
        ...


def check_step_size(kernel: str, step_size: float) -> None:
    """Raises BadInput for a step size that is not a positive number."""
    if not 0 < step_size < float("inf"):
        raise BadInput(f"{kernel} needs a step_size above 0, got {step_size}")


def check_energy(kernel: str, energy: object) -> None:
    """Raises BadInput for a score: a Metropolis test needs energies."""
    if not is_energy(energy):
        raise BadInput(
            f"the sampler {kernel} needs an energy, and this model has only a score (the gradient of log p); "
            "use the sampler langevin (--sampler langevin)"
        )


def per_chain(values: Tensor, x: Tensor) -> Tensor:
    """Returns values (B,) in a shape that broadcasts over states x (B, ...)."""
    return values.view(-1, *[1] * (x.ndim - 1))


def lengths(x: Tensor) -> Tensor:
    """Returns the norm of each state (B,)."""
    norms: Tensor = x.reshape(len(x), -1).norm(dim=1)
    return norms


def shorten(norms: Tensor, *, to: float | Tensor) -> Tensor:
    """Returns the factors (B,) that limit vectors of these norms to the length `to`."""
    factors: Tensor = (to / norms.clamp_min(torch.finfo(norms.dtype).tiny)).clamp_max(1)
    return factors
