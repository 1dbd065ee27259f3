"""Energy basins: where descent from many states ends, how high the ways between the ends are, and the tree of both."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ebmlife.errors import BadInput, Diverged
from ebmlife.exam.reference import map_batches
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.loop import langevin

POINTS = 17  # of a straight way between two ends, themselves included
HALVINGS = 5  # of the step size, once descent has arrived: a ReLU network's minima are kinks
ARRIVED = 0.01  # of the depth that makes a basin: descent that gains less in a round has arrived
_ROUNDS = 100  # most rounds that are waited for it
MOST = 256  # states whose basins the exam maps: the ways between them are as many as their square
_BATCH = 1024


@dataclass(frozen=True)
class Merge:
    """Where two parts of the landscape meet; each is known by its lowest basin."""

    height: float
    lower: int
    higher: int


@dataclass(frozen=True)
class Landscape:
    """Basins, the lowest first, and how they join."""

    minima: Tensor  # (M, ...)
    energies: Tensor  # float64 (M,)
    basin: Tensor  # int64 (B,): the one that each start went down to
    merges: list[Merge]  # M - 1 of them, upwards

    @property
    def sizes(self) -> list[int]:
        """How many starts each basin has."""
        counts: list[int] = torch.bincount(self.basin, minlength=len(self.minima)).tolist()
        return counts


def basins(
    energy: Energy, x: Tensor, *, step_size: float, steps: int = 300, depth: float = 1.0, clip: float | None = None
) -> Landscape:
    """The basins in which states x (B, ...) lie.

    Each state goes down by x <- x - (step_size**2 / 2) * grad E(x), Langevin without its noise, in rounds of `steps`
    until no state gains by it any more. A basin reaches from
    its minimum up to its barrier, where it joins one that is lower; those that are less than `depth` deep are parts of
    that one: at temperature 1 a chain hardly sees them. Time grows with B**2.
    """
    if len(x) < 2 or not depth > 0:
        raise BadInput(f"basins need at least 2 states and a depth above 0, got {len(x)} and {depth}")
    x = descend(energy, x, steps=steps, step_size=step_size, enough=ARRIVED * depth, clip=clip)
    energies = map_batches(energy, x, _BATCH).double()
    if not energies.isfinite().all():
        raise Diverged("the energy is not finite where descent ended")
    order = energies.argsort()
    x, energies = x[order.to(x.device)], energies[order]
    heights = barriers(energy, x)
    if not heights.isfinite().all():
        raise Diverged("the energy is not finite between two ends of descent")
    owner, merges = _join(heights, energies, depth)
    kept = sorted(set(owner))
    rank = {end: number for number, end in enumerate(kept)}
    basin = torch.empty_like(order)
    basin[order] = torch.tensor([rank[end] for end in owner])
    tree = [Merge(merge.height, rank[merge.lower], rank[merge.higher]) for merge in merges]
    return Landscape(x[kept].cpu(), energies[kept], basin, tree)


def descend(
    energy: Energy, x: Tensor, *, steps: int, step_size: float, enough: float, clip: float | None = None
) -> Tensor:
    """States downhill, each until a round of `steps` steps lowers it by no more than `enough`; then by ever smaller
    steps. A state that has arrived rests: across the kinks of a ReLU network steps go up and down for ever.
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
        raise Diverged(f"descent has not arrived after {done}: they are too small, or it goes down for ever")
    for halvings in range(1, HALVINGS + 1):
        x = lower(x, step_size / 2**halvings)
    return x


def barriers(energy: Energy, x: Tensor) -> Tensor:
    """float64 (B, B): the highest energy of some points of the straight line between each two states."""
    heights = torch.diag(map_batches(energy, x, _BATCH).double())
    share = torch.linspace(0, 1, POINTS, device=x.device, dtype=x.dtype).view(-1, *[1] * (x.ndim - 1))
    for i in range(len(x) - 1):
        others = x[i + 1 :].unsqueeze(1)
        ways = torch.lerp(x[i].expand_as(others), others, share)  # (B - i - 1, POINTS, ...)
        heights[i, i + 1 :] = map_batches(energy, ways.flatten(0, 1), _BATCH).double().view(-1, POINTS).amax(1)
    return heights.triu() + heights.triu(1).T


def _join(heights: Tensor, energies: Tensor, depth: float) -> tuple[list[int], list[Merge]]:
    """(the basin of each end, how basins join), a basin known by its lowest end; energies ascend.

    Ends are joined by ascending barriers, so that each two meet at the lowest way, by other ends where that is lower.
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
        height, met = heights[i, j].item(), owner[i if part[i] == lower else j]
        part = [lower if mine == higher else mine for mine in part]
        if height - energies[higher] < depth:
            owner = [met if mine == higher else mine for mine in owner]
        else:
            merges.append(Merge(height, lower, higher))
    return owner, merges
