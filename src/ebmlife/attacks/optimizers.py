"""Optimizers of attacks: each proposes the next adversary. A new one needs a class that fits `Optimizer`, and a line in
the table `OPTIMIZERS`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ebmlife.attacks.threat import Threat
from ebmlife.errors import by_name


@dataclass(frozen=True)
class Ascent:
    """The loss and its gradient at the adversaries X_j of n images."""

    step: int  # j
    loss: Tensor  # (n,): what the attack maximizes, of the averaged logits
    gradient: Tensor | None  # (n, C, H, W): its gradient; None for an optimizer that needs none


class Optimizer(Protocol):
    """Proposes adversaries within a threat. It has no state: the same arguments give the same adversaries."""

    @property
    def needs_gradient(self) -> bool:
        """Whether `step` needs the gradient of the loss."""
        ...

    def start(self, origin: Tensor, *, rng: torch.Generator) -> Tensor:
        """Returns X_0 of one natural image (C, H, W)."""
        ...

    def step(self, x: Tensor, origin: Tensor, ascent: Ascent) -> Tensor:
        """Returns X_(j+1) (n, C, H, W) for the adversaries x = X_j of the natural images `origin`."""
        ...


@dataclass(frozen=True)
class PGD:
    """Projected gradient ascent: X_(j+1) = P(X_j + alpha d), with P the projection into the threat.

    d is the sign of the gradient for linf, and the normalized gradient for l2. X_0 is uniform in the ball.
    """

    threat: Threat
    step_size: float  # alpha in the paper, in pixels of [0, 1]
    needs_gradient = True

    def start(self, origin: Tensor, *, rng: torch.Generator) -> Tensor:
        return self.threat.start(origin, rng=rng)

    def step(self, x: Tensor, origin: Tensor, ascent: Ascent) -> Tensor:
        assert ascent.gradient is not None
        return self.threat.step(x, ascent.gradient, origin, size=self.step_size)


# Each entry is called with the threat and the length of a step.
OPTIMIZERS: dict[str, Callable[[Threat, float], Optimizer]] = {"pgd": PGD}


def find(method: str) -> Callable[[Threat, float], Optimizer]:
    """Returns the constructor of the optimizer with that name."""
    return by_name(OPTIMIZERS, method, "attack method")
