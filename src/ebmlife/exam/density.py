"""Ground truth in the plane: exp(-E) normalised by quadrature, beside a density that is known exactly."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ebmlife.data import Toy
from ebmlife.errors import BadInput, Diverged
from ebmlife.exam.reference import map_batches
from ebmlife.sampling.energy import Energy

HALF = 2.0  # the square [-HALF, HALF]^2 holds all of a toy's mass but 1e-6
CELLS = 400  # along a side: a cell is 0.01 wide, a quarter of the narrowest toy's deviation
_BATCH = 20_000
_EDGE = 0.05  # of the square's width
_LOST = 0.002  # of the truth's mass, that may be missed


@dataclass(frozen=True)
class Surface:
    """A density on the midpoints of the square's cells."""

    log_density: Tensor  # float64 (CELLS, CELLS); [i, j] is at x_i, y_j

    @property
    def mass(self) -> Tensor:
        """Of each cell."""
        return self.log_density.exp() * _cell()

    @property
    def at_edge(self) -> float:
        """The share of mass in the square's outer rim: much of it says that there is more beyond."""
        rim = int(_EDGE * CELLS)
        return 1 - self.mass[rim:-rim, rim:-rim].sum().item()


@dataclass(frozen=True)
class Comparison:
    total_variation: float  # half the integral of |p - q|
    kl: float  # of the truth from the model: integral of q log(q / p)
    masses: tuple[float, ...]  # the model's, in each of the toy's regions
    true_masses: tuple[float, ...]
    at_edge: float


def midpoints() -> Tensor:
    """float32 (CELLS^2, 2)."""
    line = (torch.arange(CELLS, dtype=torch.float64) + 0.5) * (2 * HALF / CELLS) - HALF
    return torch.cartesian_prod(line, line).float()


def normalised(energy: Energy) -> Surface:
    """p(x) = exp(-E(x)) / sum over cells of exp(-E) times their area, on the square."""
    device = next((p.device for p in getattr(energy, "parameters", list)()), torch.device("cpu"))
    energies = map_batches(energy, midpoints().to(device), _BATCH).double()
    if not energies.isfinite().all():
        raise Diverged("the energy is not finite everywhere on the square that it is integrated over")
    log_mass = torch.logsumexp(-energies, 0) + math.log(_cell())
    return Surface((-energies - log_mass).view(CELLS, CELLS))


def exact(toy: Toy) -> Surface:
    return Surface(map_batches(toy.log_density, midpoints().double(), _BATCH).view(CELLS, CELLS))


def compare(energy: Energy, toy: Toy) -> Comparison:
    """How far the density of an energy is from the truth."""
    p, q = normalised(energy), exact(toy)
    seen = q.mass.sum().item()
    if abs(seen - 1) > _LOST:
        where = f"on a square of {2 * HALF:g} in cells of {2 * HALF / CELLS:g}"
        raise BadInput(f"the truth has a mass of {seen:.3f}, not 1, {where}; choose a toy of another scale")
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
