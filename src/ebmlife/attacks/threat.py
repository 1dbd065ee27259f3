"""What an attacker may do to an image, and the steps of projected gradient ascent under it."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Self

import torch
from torch import Tensor

from ebmlife.errors import BadInput, nearest

Norm = Literal["linf", "l2"]
_NORMS = ("linf", "l2")


@dataclass(frozen=True)
class Threat:
    """Images within `radius` of the natural one, in pixels of [0, 1], and inside the image cube.

    Tensors are in [-1, 1]: lengths double on their way in, here and nowhere else.
    """

    norm: Norm
    radius: float  # epsilon in the paper

    def __post_init__(self) -> None:
        if self.norm not in _NORMS:
            raise BadInput(f"unknown norm {self.norm!r} of a threat{nearest(str(self.norm), _NORMS)}")
        if not isinstance(self.radius, int | float):
            raise BadInput(
                f"the radius of a threat is a number, got {self.radius!r}; Threat.parse reads text such as 'linf:8/255'"
            )
        if not 0 < self.radius < float("inf"):
            raise BadInput(f"the radius of a threat must be above 0 and finite, got {self.radius}")
        if self.norm == "linf" and self.radius > 1:
            raise BadInput(
                f"radius {self.radius:g} of an linf threat: it is in pixels of [0, 1] and at most 1; "
                f"of 255 levels give {self.radius:g}/255"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """'linf:8/255' or 'l2:0.5'."""
        norm, colon, radius = text.partition(":")
        if not colon:
            raise BadInput(f"threat {text!r}: expected a norm and a radius, such as linf:8/255 or l2:0.5")
        return cls(norm, length(radius))  # type: ignore[arg-type]  # the constructor checks the norm

    @classmethod
    def of(cls, threat: "Threat | str") -> "Threat":
        """A threat as it is, or from its text."""
        if not isinstance(threat, Threat | str):
            raise BadInput(f"a threat is a Threat or its text, such as 'linf:8/255', got {threat!r}")
        return cls.parse(threat) if isinstance(threat, str) else threat

    def __str__(self) -> str:
        levels = self.radius * 255
        whole = self.norm == "linf" and abs(levels - round(levels)) < 1e-9
        return f"{self.norm}:{round(levels)}/255" if whole else f"{self.norm}:{self.radius:g}"

    def start(self, origin: Tensor, *, rng: torch.Generator) -> Tensor:
        """One image, uniform in the ball around its origin (C, H, W), then clamped to the cube."""
        if self.norm == "linf":
            offset = 2 * torch.rand(origin.shape, generator=rng, device=origin.device) - 1
        else:
            direction = torch.randn(origin.shape, generator=rng, device=origin.device)
            share = torch.rand((), generator=rng, device=origin.device) ** (1 / origin.numel())
            offset = direction / direction.norm() * share
        return self.inside(origin + 2 * self.radius * offset, origin)

    def step(self, x: Tensor, grad: Tensor, origin: Tensor, *, size: float) -> Tensor:
        """Up the slope by `size` (in pixels of [0, 1]), back into the ball around the origins, into the cube."""
        if self.norm == "linf":
            direction = grad.sign()
        else:
            grad = grad / grad.abs().amax((-3, -2, -1), keepdim=True).clamp_min(1e-38)  # squares of small ones are 0
            lengths = _lengths(grad)
            direction = torch.where(lengths > 0, grad / lengths, grad)
        return self.inside(x + 2 * size * direction, origin)

    def inside(self, x: Tensor, origin: Tensor) -> Tensor:
        """The nearest images in the ball, clamped to the cube, which leads no image out of the ball again."""
        offset, radius = x - origin, 2 * self.radius
        if self.norm == "linf":
            offset = offset.clamp(-radius, radius)
        else:
            offset = offset * (radius / _lengths(offset)).clamp_max(1)
        return (origin + offset).clamp(-1, 1)


def length(text: str) -> float:
    """'8/255' or '0.03'."""
    try:
        return float(Fraction(text.strip())) if "/" in text else float(text)
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise BadInput(f"{text!r} is not a number or a fraction such as 8/255") from error


def _lengths(x: Tensor) -> Tensor:
    """L2 norms over the image, of shape (..., 1, 1, 1)."""
    return x.square().sum((-3, -2, -1), keepdim=True).sqrt()
