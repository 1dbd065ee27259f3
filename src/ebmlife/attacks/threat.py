"""Threats: the perturbations that an attacker may choose, and projected steps within them."""

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
    """All images within `radius` of the natural one, inside the image cube.

    Radii and step sizes are in pixels of [0, 1] and tensors in [-1, 1]: the factor of 2 is applied here only.

    Args:
        norm: "linf" or "l2".
        radius: Radius of the ball in pixels of [0, 1] (epsilon in the paper).

    Raises:
        BadInput: The norm is unknown, or the radius is out of range.
    """

    norm: Norm
    radius: float

    def __post_init__(self) -> None:
        if self.norm not in _NORMS:
            raise BadInput(f"unknown norm {self.norm!r} of a threat{nearest(str(self.norm), _NORMS)}")
        if not isinstance(self.radius, int | float):
            raise BadInput(
                f"the radius of a threat must be a number, got {self.radius!r}; "
                "Threat.parse takes text such as 'linf:8/255'"
            )
        if not 0 < self.radius < float("inf"):
            raise BadInput(f"the radius of a threat must be above 0 and finite, got {self.radius}")
        if self.norm == "linf" and self.radius > 1:
            raise BadInput(
                f"the radius of an linf threat is in pixels of [0, 1] and at most 1, got {self.radius:g}; "
                f"for {self.radius:g} of 255 levels, give {self.radius:g}/255"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads a threat from text.

        Args:
            text: A norm and a radius, such as "linf:8/255" or "l2:0.5".

        Raises:
            BadInput: The text is not of this form, or the values are out of range.
        """
        norm, colon, radius = text.partition(":")
        if not colon:
            raise BadInput(f"threat {text!r}: expected a norm and a radius, such as linf:8/255 or l2:0.5")
        return cls(norm, length(radius))  # type: ignore[arg-type]  # the constructor checks the norm

    @classmethod
    def of(cls, threat: "Threat | str") -> "Threat":
        """Returns the threat itself, or reads it from text."""
        if not isinstance(threat, Threat | str):
            raise BadInput(f"a threat must be a Threat or text such as 'linf:8/255', got {threat!r}")
        return cls.parse(threat) if isinstance(threat, str) else threat

    def __str__(self) -> str:
        levels = self.radius * 255
        whole = self.norm == "linf" and abs(levels - round(levels)) < 1e-9
        return f"{self.norm}:{round(levels)}/255" if whole else f"{self.norm}:{self.radius:g}"

    def start(self, origin: Tensor, *, rng: torch.Generator) -> Tensor:
        """Returns one image, drawn uniformly from the ball around its origin (C, H, W) and clamped to the cube."""
        if self.norm == "linf":
            offset = 2 * torch.rand(origin.shape, generator=rng, device=origin.device) - 1
        else:
            direction = torch.randn(origin.shape, generator=rng, device=origin.device)
            share = torch.rand((), generator=rng, device=origin.device) ** (1 / origin.numel())
            offset = direction / direction.norm() * share
        return self.inside(origin + 2 * self.radius * offset, origin)

    def step(self, x: Tensor, grad: Tensor, origin: Tensor, *, size: float) -> Tensor:
        """Returns x after a step of length `size` (in pixels of [0, 1]) along the gradient and the projection."""
        if self.norm == "linf":
            direction = grad.sign()
        else:
            grad = grad / grad.abs().amax((-3, -2, -1), keepdim=True).clamp_min(
                1e-38
            )  # squares of small values would be 0
            lengths = _lengths(grad)
            direction = torch.where(lengths > 0, grad / lengths, grad)
        return self.inside(x + 2 * size * direction, origin)

    def inside(self, x: Tensor, origin: Tensor) -> Tensor:
        """Returns the nearest images in the ball, clamped to the cube. Clamping keeps them inside the ball."""
        offset, radius = x - origin, 2 * self.radius
        if self.norm == "linf":
            offset = offset.clamp(-radius, radius)
        else:
            offset = offset * (radius / _lengths(offset)).clamp_max(1)
        return (origin + offset).clamp(-1, 1)


def length(text: str) -> float:
    """Reads a length from text, such as "8/255" or "0.03"."""
    try:
        return float(Fraction(text.strip())) if "/" in text else float(text)
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise BadInput(f"{text!r} is not a number or a fraction such as 8/255") from error


def _lengths(x: Tensor) -> Tensor:
    """Returns the L2 norms of the images, of shape (..., 1, 1, 1)."""
    return x.square().sum((-3, -2, -1), keepdim=True).sqrt()
