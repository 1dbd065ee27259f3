"""What data look like to the exam: the moments of their features, and what so many of them score by chance."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from ebmlife.data import Dataset
from ebmlife.distributed import SINGLE_PROCESS, Ranks
from ebmlife.errors import BadInput
from ebmlife.exam.frechet import Moments, frechet_distance, moments
from ebmlife.exam.kept import once
from ebmlife.exam.metrics import metrics_of
from ebmlife.sampling import fingerprint
from ebmlife.sampling.energy import frozen
from ebmlife.sampling.rng import generator

DRAWS = 50  # random sets of data, each as large as the set of chains, whose figures make up data's range
AXES = 3  # principal components of the features that parallel chains are compared along
_COARSE = 8  # pixels: images whose own values are the features are averaged to this size at most


@dataclass(frozen=True)
class Features:
    """Where distances to data are taken: a name for the distance, and states (B, ...) -> features (B, D)."""

    name: str
    of: Callable[[Tensor], Tensor]
    kept: bool = False  # in the cache, of data: where they take minutes


def plain(x: Tensor) -> Tensor:
    """The states' own values; images are averaged to 8x8."""
    if x.ndim == 4 and x.shape[-1] > _COARSE:
        x = F.adaptive_avg_pool2d(x, _COARSE)
    return x.flatten(1)


PLAIN = Features("moments", plain)


@dataclass(frozen=True)
class Reference:
    moments: Moments
    ranges: dict[str, tuple[float, float]]  # of each figure, and of the distance: least and most over the draws
    centre: Tensor  # (D,) of the features
    axes: Tensor  # (D, AXES or fewer)
    chance: tuple[float, float]  # mean and deviation, over the draws, of the distance's logarithm

    @property
    def spread(self) -> float:
        """tr C: how far from the data is one and the same state, their mean."""
        return self.moments.covariance.trace().item()

    def distance(self, features: Tensor) -> float:
        """The Fréchet distance of features (B, D) to the data's."""
        return frechet_distance(self.moments, moments([features]))

    def by_chance(self, deviations: float) -> float:
        """A distance that so many data have by chance, if it is so many deviations above their usual one. Distances of
        draws are nearly log-normal: sums of squares, of which a few are most of it."""
        mean, deviation = self.chance
        return math.exp(mean + deviations * deviation)

    def project(self, features: Tensor) -> Tensor:
        """(B, D) -> (B, AXES)."""
        return (features.cpu() - self.centre) @ self.axes


def reference(
    data: Tensor,
    *,
    chains: int,
    features: Features,
    noise: float,
    rng: torch.Generator,
    batch: int = 256,
    ranks: Ranks = SINGLE_PROCESS,
) -> Reference:
    """Of states (N, ...). `noise` goes on the data whose pixels are compared, as it did when the model learned them;
    the distance is to the data without it."""
    if len(data) < 2 or chains < 2:
        raise BadInput(f"an exam needs at least 2 chains and 2 states of data, got {chains} and {len(data)}")
    made = partial(in_parts, features.of, data, batch, ranks=ranks)
    of_data = once(f"{features.name}-{fingerprint.of_tensors(data)}", made, ranks=ranks) if features.kept else made()
    whole = moments([of_data])
    ranges: dict[str, list[float]] = {}
    for _ in range(DRAWS):
        rows = torch.randint(len(data), (chains,), generator=rng)
        x = data[rows]
        seen = metrics_of(x + noise * torch.randn(x.shape, generator=rng))
        seen["diversity"] *= len(data) / (len(data) - 1)  # a state drawn twice is no pair
        # The data are a sample too: others of their kind are further from them than they are from themselves.
        seen["distance"] = frechet_distance(whole, moments([of_data[rows]])) * (1 + chains / len(data))
        for name, value in seen.items():
            ranges.setdefault(name, []).append(value)
    centre = of_data.mean(0)
    axes = torch.linalg.svd(of_data[:2000] - centre, full_matrices=False).Vh[:AXES].T
    logarithms = torch.tensor(ranges["distance"], dtype=torch.float64).clamp_min(1e-300).log()  # copies of one: 0
    chance = logarithms.mean().item(), logarithms.std().item()
    return Reference(whole, {name: (min(seen), max(seen)) for name, seen in ranges.items()}, centre, axes, chance)


@torch.no_grad()
def in_parts(of: Callable[[Tensor], Tensor], x: Tensor, batch: int, *, ranks: Ranks = SINGLE_PROCESS) -> Tensor:
    """of(x) batch by batch, on the CPU; several ranks share the batches. A module looks in eval mode, as it walks."""
    with frozen(of, walking=False):
        return torch.cat([made.cpu() for made in ranks.in_order([partial(of, part) for part in torch.split(x, batch)])])


def some_of(data: Dataset, n: int, *, seed: int = 0) -> Tensor:
    """n states of a data set, or all where there are fewer."""
    rows = torch.randperm(len(data), generator=generator(seed, "exam data"))[:n]
    return data.take(rows.sort().values)
