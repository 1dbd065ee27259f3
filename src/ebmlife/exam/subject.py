"""What an exam examines: an energy, the start of its chains, and the data that samples are compared with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import Tensor

from ebmlife.data import Dataset
from ebmlife.errors import BadInput
from ebmlife.exam.features import PLAIN, Features
from ebmlife.sampling.energy import Energy, frozen, gradient, is_energy


class HasGradient(Protocol):
    """A model without an energy, whose `gradient` is minus its score: chains can run on it."""

    def gradient(self, x: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Subject:
    """An energy, the start states of its chains, and the data that samples are compared with."""

    energy: Energy | HasGradient
    x0: Tensor
    data: Dataset | Tensor | None = None  # None: x0 itself
    data_noise: float = 0.0  # standard deviation of the noise on the data that the model learned
    features: Features = PLAIN  # of the distance
    trace: Features = PLAIN  # of R-hat
    classifier: Callable[[Tensor], Tensor] | None = None
    clip: float | None = None  # of the Langevin steps

    @property
    def has_energy(self) -> bool:
        """Whether E(x) can be computed, and not only its gradient."""
        return is_energy(self.energy)

    @property
    def sampled_energy(self) -> Energy:
        """The energy for the Langevin loop, or the object with only a gradient."""
        return cast(Energy, self.energy)

    def validate(self, batch: int) -> None:
        """Raises BadInput if this subject cannot be examined in batches of this size."""
        x0, data = self.x0, self.data
        if x0.ndim < 2 or len(x0) < 2 or not x0.numel() or x0.dtype not in (torch.float32, torch.float64):
            raise BadInput(
                "an exam needs at least 2 start states (B, ...) of float32 or float64, "
                f"got {x0.dtype} of shape {tuple(x0.shape)}"
            )
        if not x0.isfinite().all():
            raise BadInput("the start states of the exam are not finite")
        if isinstance(data, Tensor) and not data.isfinite().all():
            raise BadInput("the data that samples are compared with are not finite")
        shape = x0.shape[1:] if data is None else data.shape[1:] if isinstance(data, Tensor) else data.shape
        if tuple(shape) != tuple(x0.shape[1:]):
            raise BadInput(f"the data have shape {tuple(shape)}, but the start states {tuple(x0.shape[1:])}")
        self._validate_energy(x0[:batch])

    def _validate_energy(self, x: Tensor) -> None:
        """Calls the energy once: a network that returns (B, 1) would fail hundreds of steps later."""
        name = "energy"
        try:
            with frozen(self.sampled_energy, walking=False):
                if self.has_energy:
                    with torch.no_grad():
                        _validate_shape(name, self.sampled_energy(x), x.shape[:1], x)
                name = "gradient"
                _validate_shape(name, gradient(self.sampled_energy, x), x.shape, x)
        except BadInput:
            raise
        except Exception as error:  # the energy may be any user function
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise BadInput(
                f"the {name} of states {tuple(x.shape)} failed with {reason}; --debug shows where"
            ) from error


def _validate_shape(name: str, value: object, expected: torch.Size, x: Tensor) -> None:
    if not isinstance(value, Tensor) or value.shape != expected:
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise BadInput(
            f"the {name} of states {tuple(x.shape)} must be a tensor of the shape {tuple(expected)}, got {got}"
        )
