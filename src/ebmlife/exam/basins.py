"""Energy basins: the minima below many states, the barriers between them, and the tree in which basins join."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ebmlife.errors import BadInput, Diverged
from ebmlife.exam.reference import map_batches
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.loop import langevin

POINTS = 17  # on the straight line between two minima, including both
HALVINGS = 5  # of the step size after descent has converged: the minima of a ReLU network are kinks
CONVERGED = 0.01  # of the least depth of a basin: descent that gains less in a round has converged
_ROUNDS = 100  # most rounds of descent
MOST = 256  # states whose basins the exam maps: the number of lines between them is quadratic
_BATCH = 1024


@dataclass(frozen=True)
class Merge:
    """The energy at which two parts of the landscape join; each part is identified by its lowest basin."""

    height: float
    lower: int
    higher: int


@dataclass(frozen=True)
class Landscape:
    """The basins of an energy, the lowest first, and how they join.

    Attributes:
        minima: States (M, ...) at the minimum of each basin.
        energies: Energies (M,) of the minima, float64.
        basin: Index (B,) of the basin of each state that was given.
        merges: The M - 1 joins, in the order of their energy.
    """

    minima: Tensor
    energies: Tensor
    basin: Tensor
    merges: list[Merge]

    @property
    def sizes(self) -> list[int]:
        """The number of given states in each basin."""
        counts: list[int] = torch.bincount(self.basin, minlength=len(self.minima)).tolist()
        return counts


def basins(
    energy: Energy, x: Tensor, *, step_size: float, steps: int = 300, depth: float = 1.0, clip: float | None = None
) -> Landscape:
    """Finds the basins of the energy in which states lie.

    Each state descends by x <- x - (step_size**2 / 2) * grad E(x), Langevin without noise, until its energy falls no
    more. The barrier between two minima is the lowest energy at which a path along straight lines between minima joins
    them. A basin reaches from its minimum up to its lowest barrier. Basins less than `depth` deep are merged into the
    one that they join: at temperature 1 they hardly affect a chain. The time is quadratic in B.

    Args:
        energy: A callable from states (B, ...) to energies (B,).
        x: States (B, ...), at least 2.
        step_size: Step size of the descent.
        steps: Number of steps in a round of descent.
        depth: Least depth of a basin.
        clip: Largest length of a step of the descent.

    Returns:
        The basins, which of them each state lies in, and how they join.

    Raises:
        Diverged: If the energy is not finite, or descent does not converge.
    """
    if len(x) < 2 or not depth > 0:
        raise BadInput(f"basins need at least 2 states and a depth above 0, got {len(x)} and {depth}")
    x = descend(energy, x, steps=steps, step_size=step_size, enough=CONVERGED * depth, clip=clip)
    energies = map_batches(energy, x, _BATCH).double()
    if not energies.isfinite().all():
        raise Diverged("the energy is not finite at the end of the descent")
    order = energies.argsort()
    x, energies = x[order.to(x.device)], energies[order]
    heights = barriers(energy, x)
    if not heights.isfinite().all():
        raise Diverged("the energy is not finite between two minima")
    owner, merges = _join(heights, energies, depth)
    kept = sorted(set(owner))
    rank = {minimum: number for number, minimum in enumerate(kept)}
    basin = torch.empty_like(order)
    basin[order] = torch.tensor([rank[minimum] for minimum in owner])
    tree = [Merge(merge.height, rank[merge.lower], rank[merge.higher]) for merge in merges]
    return Landscape(x[kept].cpu(), energies[kept], basin, tree)


def descend(
    energy: Energy, x: Tensor, *, steps: int, step_size: float, enough: float, clip: float | None = None
) -> Tensor:
    """Returns states after descent, each until a round of `steps` steps lowers its energy by no more than `enough`.

    Then all continue with smaller and smaller steps. A state that has converged is not moved in further rounds: across
    the kinks of a ReLU network, steps would go up and down forever.
    """

    def lower(x: Tensor, size: float) -> Tensor:
        return langevin(energy, x, steps=steps, step_size=size, noise=torch.zeros_like, clip=clip)[0]

    x, moving = x.clone(), torch.arange(len(x), device=x.device)
    before = map_batches(energy, x, _BATCH)
    for _ in range(_ROUNDS):
        x[moving] = lower(x[moving], step_size)
        after = map_batches(energy, x[moving], _BATCH)
        gaining = before - after > enough
        moving, before = moving[gaining], after[gaining]
        if not len(moving):
            break
    else:
        done = f"{_ROUNDS * steps:,} steps of size {step_size:g}"
        raise Diverged(f"descent has not converged after {done}: the steps are too small, or there is no minimum")
    for halvings in range(1, HALVINGS + 1):
        x = lower(x, step_size / 2**halvings)
    return x


def barriers(energy: Energy, x: Tensor) -> Tensor:
    """Returns (B, B) in float64: the highest energy on the straight line between each two states, at POINTS points."""
    heights = torch.diag(map_batches(energy, x, _BATCH).double())
    share = torch.linspace(0, 1, POINTS, device=x.device, dtype=x.dtype).view(-1, *[1] * (x.ndim - 1))
    for i in range(len(x) - 1):
        others = x[i + 1 :].unsqueeze(1)
        lines = torch.lerp(x[i].expand_as(others), others, share)  # (B - i - 1, POINTS, ...)
        heights[i, i + 1 :] = map_batches(energy, lines.flatten(0, 1), _BATCH).double().view(-1, POINTS).amax(1)
    return heights.triu() + heights.triu(1).T


def _join(heights: Tensor, energies: Tensor, depth: float) -> tuple[list[int], list[Merge]]:
    """Returns the basin of each minimum and how basins join; a basin is identified by its lowest minimum.

    Energies ascend. Minima are joined in the order of their barriers (Kruskal's algorithm), so that each two join at
    the lowest barrier of all paths between them.
    """
    n = len(energies)
    part, owner = list(range(n)), list(range(n))
    merges = []
    rows, columns = torch.triu_indices(n, n, 1)
    order = heights[rows, columns].argsort(stable=True)
    for i, j in zip(rows[order].tolist(), columns[order].tolist(), strict=True):
        lower, higher = sorted((part[i], part[j]))
        if lower == higher:
            continue
        height, joined = heights[i, j].item(), owner[i if part[i] == lower else j]
        part = [lower if mine == higher else mine for mine in part]
        if height - energies[higher] < depth:
            owner = [joined if mine == higher else mine for mine in owner]
        else:
            merges.append(Merge(height, lower, higher))
    return owner, merges
