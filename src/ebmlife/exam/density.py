"""Densities in the plane: exp(-E) normalized by quadrature, compared with the exact density of a toy."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ebmlife.data import Toy
from ebmlife.errors import BadInput, Diverged
from ebmlife.exam.reference import map_batches
from ebmlife.sampling.energy import Energy

HALF = 2.0  # the square [-HALF, HALF]^2 holds all of a toy's mass but 1e-6
CELLS = 400  # per side: a cell is 0.01 wide, a quarter of the standard deviation of the narrowest toy
_BATCH = 20_000
_EDGE = 0.05  # of the square's width
_LOST = 0.002  # of the exact mass that may lie outside the square or between its cells


@dataclass(frozen=True)
class Surface:
    """A density on the midpoints of the square's cells."""

    log_density: Tensor  # float64 (CELLS, CELLS); [i, j] is at x_i, y_j

    @property
    def mass(self) -> Tensor:
        """The mass of each cell."""
        return self.log_density.exp() * _cell()

    @property
    def at_edge(self) -> float:
        """The fraction of the mass at the edge of the square; if it is large, there is more mass outside."""
        rim = int(_EDGE * CELLS)
        return 1 - self.mass[rim:-rim, rim:-rim].sum().item()


@dataclass(frozen=True)
class Comparison:
    """How a model's density p differs from the exact density q.

    Attributes:
        total_variation: Half the integral of |p - q|.
        kl: KL divergence, the integral of q log(q / p).
        masses: The model's mass in each of the toy's regions.
        true_masses: The exact mass in each region.
        at_edge: Fraction of the model's mass at the edge of the square.
    """

    total_variation: float
    kl: float
    masses: tuple[float, ...]
    true_masses: tuple[float, ...]
    at_edge: float


def midpoints() -> Tensor:
    """Returns the midpoints of the cells, (CELLS^2, 2) in float32."""
    line = (torch.arange(CELLS, dtype=torch.float64) + 0.5) * (2 * HALF / CELLS) - HALF
    return torch.cartesian_prod(line, line).float()


def normalized(energy: Energy) -> Surface:
    """Returns the density p(x) = exp(-E(x)) / Z on the square, where Z is the sum of exp(-E) times area over all cells.

    Args:
        energy: A callable from points (B, 2) to energies (B,).
    """
    device = next((p.device for p in getattr(energy, "parameters", list)()), torch.device("cpu"))
    energies = map_batches(energy, midpoints().to(device), _BATCH).double()
    if not energies.isfinite().all():
        raise Diverged("the energy is not finite everywhere on the square of integration")
    log_mass = torch.logsumexp(-energies, 0) + math.log(_cell())
    return Surface((-energies - log_mass).view(CELLS, CELLS))


def exact(toy: Toy) -> Surface:
    """Returns the exact density of a toy on the square.

    Args:
        toy: Toy data with a known density.
    """
    return Surface(map_batches(toy.log_density, midpoints().double(), _BATCH).view(CELLS, CELLS))


def compare(energy: Energy, toy: Toy) -> Comparison:
    """Compares the density of an energy with the exact density of a toy.

    Args:
        energy: A callable from points (B, 2) to energies (B,).
        toy: Toy data with a known density.
    """
    p, q = normalized(energy), exact(toy)
    mass = q.mass.sum().item()
    if abs(mass - 1) > _LOST:
        where = f"on a square of {2 * HALF:g} in cells of {2 * HALF / CELLS:g}"
        raise BadInput(f"the exact density has a mass of {mass:.3f}, not 1, {where}; use a toy of another scale")
    kl = (q.mass * (q.log_density - p.log_density)).sum().item()
    return Comparison(_total_variation(p, q), kl, _masses(p, toy), _masses(q, toy), p.at_edge)


def _total_variation(p: Surface, q: Surface) -> float:
    return 0.5 * (p.mass - q.mass).abs().sum().item()


def _masses(surface: Surface, toy: Toy) -> tuple[float, ...]:
    region = map_batches(toy.region, midpoints().double(), _BATCH)
    sums = torch.zeros(toy.regions, dtype=torch.float64).index_add_(0, region, surface.mass.flatten())
    return tuple(sums.tolist())


def _cell() -> float:
    return (2 * HALF / CELLS) ** 2
