"""Densities of the plane that are known exactly, at the scale of images: nearly all mass lies within [-1, 1]^2."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import torch
from torch import Tensor

from ebmlife.data.dataset import InMemory
from ebmlife.data.description import Description, described
from ebmlife.errors import BadInput, nearest


class Toy(Protocol):
    """A normalized density that can be sampled exactly."""

    def sample(self, n: int, *, rng: torch.Generator) -> Tensor:
        """float32 (n, 2), on the generator's device."""
        ...

    def log_density(self, x: Tensor) -> Tensor:
        """(B, 2) -> (B,), differentiable, in the dtype and on the device of x."""
        ...

    @property
    def regions(self) -> int:
        """Number of parts that share the mass: modes, rings or arms."""
        ...

    def region(self, x: Tensor) -> Tensor:
        """(B, 2) -> int64 (B,): the part that is nearest."""
        ...


def _bumps_log_density(x: Tensor, centers: Tensor, scale: float) -> Tensor:
    """log (1/M) sum_m N(x; centers_m, scale^2 I)."""
    squares = (x[:, None] - centers.to(x)).square().sum(-1)  # (B, M)
    return torch.logsumexp(-squares / (2 * scale**2), dim=1) - math.log(2 * math.pi * scale**2 * len(centers))


def _bumps_sample(n: int, centers: Tensor, scale: float, rng: torch.Generator) -> Tensor:
    """n draws from (1/M) sum_m N(centers_m, scale^2 I)."""
    centers = centers.to(rng.device, torch.float32)
    which = torch.randint(len(centers), (n,), generator=rng, device=rng.device)
    return centers[which] + scale * torch.randn(n, 2, generator=rng, device=rng.device)


@dataclass(frozen=True)
class Mixture:
    """Equal round Gaussians, their centers evenly spaced on a circle."""

    count: int = 8
    radius: float = 0.75
    scale: float = 0.06

    @property
    def modes(self) -> Tensor:
        """float64 (count, 2): the centers."""
        angle = torch.arange(self.count, dtype=torch.float64) * (2 * math.pi / self.count)
        return self.radius * torch.stack([angle.cos(), angle.sin()], dim=1)

    def sample(self, n: int, *, rng: torch.Generator) -> Tensor:
        return _bumps_sample(n, self.modes, self.scale, rng)

    def log_density(self, x: Tensor) -> Tensor:
        return _bumps_log_density(x, self.modes, self.scale)

    @property
    def regions(self) -> int:
        return self.count

    def region(self, x: Tensor) -> Tensor:
        return torch.cdist(x, self.modes.to(x)).argmin(1)


@dataclass(frozen=True)
class Rings:
    """Concentric rings of equal height: p(x) is proportional to sum_k exp(-(|x| - radii_k)^2 / (2 scale^2))."""

    radii: tuple[float, ...] = (0.3, 0.6, 0.9)
    scale: float = 0.04

    def _mass(self, radius: float) -> float:
        """2 pi times the integral over r > 0 of r exp(-(r - radius)^2 / (2 scale^2))."""
        u = radius / (self.scale * math.sqrt(2))
        line = radius * self.scale * math.sqrt(math.pi / 2) * (1 + math.erf(u))
        return 2 * math.pi * (self.scale**2 * math.exp(-(u**2)) + line)

    def sample(self, n: int, *, rng: torch.Generator) -> Tensor:
        mass = torch.tensor([self._mass(radius) for radius in self.radii], device=rng.device)
        which = torch.multinomial(mass, n, replacement=True, generator=rng)
        ring = torch.tensor(self.radii, device=rng.device)[which]
        r = torch.empty_like(ring)
        waiting = torch.arange(n, device=rng.device)
        while len(waiting):
            # Rejection: the line's Gaussian times r. Nothing is drawn beyond 8 deviations, so the bound holds.
            center = ring[waiting]
            proposal = center + self.scale * torch.randn(len(waiting), generator=rng, device=rng.device)
            height = torch.rand(len(waiting), generator=rng, device=rng.device)
            taken = height * (center + 8 * self.scale) < proposal
            r[waiting[taken]] = proposal[taken]
            waiting = waiting[~taken]
        angle = 2 * math.pi * torch.rand(n, generator=rng, device=rng.device)
        return r[:, None] * torch.stack([angle.cos(), angle.sin()], dim=1)

    def log_density(self, x: Tensor) -> Tensor:
        gap = x.norm(dim=1, keepdim=True) - torch.tensor(self.radii).to(x)  # (B, K)
        total = sum(self._mass(radius) for radius in self.radii)
        return torch.logsumexp(-gap.square() / (2 * self.scale**2), dim=1) - math.log(total)

    @property
    def regions(self) -> int:
        return len(self.radii)

    def region(self, x: Tensor) -> Tensor:
        gap: Tensor = x.norm(dim=1, keepdim=True) - torch.tensor(self.radii).to(x)  # (B, K)
        return gap.abs().argmin(1)


@dataclass(frozen=True)
class Spirals:
    """Arms on which r grows with the angle, blurred: p(x) is the mean over the curve's points c of N(x; c, scale^2 I).

    That mean over `nodes` points an arm is the definition, and samples come from the same points. At the default
    spacing, below 0.8 scale, float32 cannot tell it from the integral along an arm; only around the arms' ends, 1 % of
    the mass, do the two differ by a percent and more.
    """

    arms: int = 2
    turns: float = 1.5
    inner: float = 0.15  # where the arms start, as a fraction of the radius
    radius: float = 0.9
    scale: float = 0.04
    nodes: int = 160

    def curve(self) -> Tensor:
        """float64 (arms * nodes, 2): the points, nearly evenly spaced, because arc length grows as r^2."""
        even = (torch.arange(self.nodes, dtype=torch.float64) + 0.5) / self.nodes
        fraction = (self.inner**2 + (1 - self.inner**2) * even).sqrt()
        start = torch.arange(self.arms, dtype=torch.float64)[:, None] / self.arms
        angle = 2 * math.pi * (start + self.turns * fraction)  # (arms, nodes)
        return (self.radius * fraction[:, None] * torch.stack([angle.cos(), angle.sin()], dim=-1)).flatten(0, 1)

    def sample(self, n: int, *, rng: torch.Generator) -> Tensor:
        return _bumps_sample(n, self.curve(), self.scale, rng)

    def log_density(self, x: Tensor) -> Tensor:
        return _bumps_log_density(x, self.curve(), self.scale)

    @property
    def regions(self) -> int:
        return self.arms

    def region(self, x: Tensor) -> Tensor:
        return torch.cdist(x, self.curve().to(x)).argmin(1) // self.nodes


MOST = 10**7  # points of a data set
TOYS: Mapping[str, Callable[..., Toy]] = MappingProxyType({"mixture": Mixture, "rings": Rings, "spirals": Spirals})


def density(name: str, *, scale: float | None = None) -> Toy:
    """A toy density by name.

    Args:
        name: One of `TOYS`: "mixture", "rings" or "spirals".
        scale: Width of its modes, rings or arms. None: the default.

    Returns:
        The density.
    """
    if name not in TOYS:
        raise BadInput(f"no toy density is called {name!r}{nearest(name, TOYS)}")
    if scale is not None and not 0 < scale < math.inf:
        raise BadInput(f"the scale of a toy density must be above 0, not {scale}")
    return TOYS[name]() if scale is None else TOYS[name](scale=scale)


@described(Description(shape=(2,)))
def toy(name: str, *, n: int = 100_000, seed: int = 0, scale: float | None = None) -> InMemory:
    """Training points (2,) of a toy density.

    Args:
        name: One of `TOYS`: "mixture", "rings" or "spirals".
        n: Number of points.
        seed: Seed of the draw.
        scale: Width of the modes, rings or arms. None: the density's default.

    Returns:
        The data set.
    """
    if not 1 <= n <= MOST:
        raise BadInput(f"a toy data set has from 1 to {MOST} points, not {n}")
    if not 0 <= seed < 2**63:
        raise BadInput(f"the seed of a toy data set must be at least 0 and below 2**63, not {seed}")
    return InMemory(density(name, scale=scale).sample(n, rng=torch.Generator().manual_seed(seed)))
