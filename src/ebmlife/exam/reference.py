"""The data that an exam compares samples with: moments of their features, and the range of each metric by chance."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ebmlife.data import Dataset
from ebmlife.distributed import SINGLE_PROCESS, Ranks
from ebmlife.errors import BadInput
from ebmlife.exam.features import Features
from ebmlife.exam.frechet import Moments, frechet_distance, moments
from ebmlife.exam.metrics import measure_data
from ebmlife.sampling import fingerprint
from ebmlife.sampling.energy import frozen
from ebmlife.sampling.rng import generator
from ebmlife.storage import cache

DRAWS = 50  # random sets of data, each as large as the set of chains, which give the range of each metric
AXES = 3  # principal components of the features along which parallel chains are compared


@dataclass(frozen=True)
class Reference:
    """Statistics of data that samples are compared with."""

    moments: Moments
    ranges: dict[str, tuple[float, float]]  # of each metric and of the distance: (least, most) over the draws
    center: Tensor  # (D,), the mean of the features
    axes: Tensor  # (D, AXES or fewer)
    chance: tuple[float, float]  # mean and standard deviation, over the draws, of the distance's logarithm

    @property
    def spread(self) -> float:
        """tr C: the distance between the data and copies of their mean."""
        return self.moments.covariance.trace().item()

    def distance(self, features: Tensor) -> float:
        """Returns the Fréchet distance between features (B, D) and those of the data."""
        return frechet_distance(self.moments, moments([features]))

    def by_chance(self, deviations: float) -> float:
        """Returns the distance that lies this many standard deviations above that of a random set of data.

        Distances of random sets are nearly log-normal: sums of squares that a few terms dominate.
        """
        mean, deviation = self.chance
        return math.exp(mean + deviations * deviation)

    def project(self, features: Tensor) -> Tensor:
        """Projects features (B, D) onto the axes, (B, AXES)."""
        return (features.cpu() - self.center) @ self.axes


def compute_reference(
    data: Tensor,
    *,
    chains: int,
    features: Features,
    noise: float,
    rng: torch.Generator,
    batch: int = 256,
    ranks: Ranks = SINGLE_PROCESS,
) -> Reference:
    """Computes what an exam with this number of chains compares samples with.

    Args:
        data: States (N, ...).
        chains: Size of each random set of data.
        features: Features of the distance.
        noise: Standard deviation of the noise under which the model learned the data. It is added to the data for all
            metrics but the distance.
        rng: Generator of the random sets.
        batch: Number of states whose features are computed together.
        ranks: Processes that share the batches.
    """
    if len(data) < 2 or chains < 2:
        raise BadInput(f"an exam needs at least 2 chains and 2 states of data, got {chains} and {len(data)}")
    compute = partial(map_batches, features.of, data, batch, ranks=ranks)
    name = f"{features.name}-{fingerprint.of_tensors(data)}" if features.cached else None
    of_data = compute() if name is None else cached_features(name, compute, ranks=ranks)
    all_moments = moments([of_data])
    draws: dict[str, list[float]] = {}
    for _ in range(DRAWS):
        rows = torch.randint(len(data), (chains,), generator=rng)
        x = data[rows]
        found = measure_data(x + noise * torch.randn(x.shape, generator=rng))
        found["diversity"] *= len(data) / (len(data) - 1)  # a state drawn twice is not a pair
        # The data are a sample too: new data are further from them than they are from themselves.
        found["distance"] = frechet_distance(all_moments, moments([of_data[rows]])) * (1 + chains / len(data))
        for metric, value in found.items():
            draws.setdefault(metric, []).append(value)
    center = of_data.mean(0)
    axes = torch.linalg.svd(of_data[:2000] - center, full_matrices=False).Vh[:AXES].T
    logarithms = torch.tensor(draws["distance"], dtype=torch.float64).clamp_min(1e-300).log()  # 0 for equal states
    chance = logarithms.mean().item(), logarithms.std().item()
    ranges = {metric: (min(values), max(values)) for metric, values in draws.items()}
    return Reference(all_moments, ranges, center, axes, chance)


def cached_features(name: str, compute: Callable[[], Tensor], *, ranks: Ranks = SINGLE_PROCESS) -> Tensor:
    """Returns the features of this name from the cache, or computes them on all ranks and stores them."""
    found = cache.find(name)
    if not ranks.any(found is None) and found is not None:
        return found["features"]
    features = compute()
    if ranks.local == 0:
        cache.keep(name, {"features": features})
    return features


@torch.no_grad()
def map_batches(
    function: Callable[[Tensor], Tensor], x: Tensor, batch: int, *, ranks: Ranks = SINGLE_PROCESS
) -> Tensor:
    """Returns function(x) on the CPU, computed batch by batch; ranks share the batches, modules are in eval mode."""
    with frozen(function, walking=False):
        parts = ranks.in_order([partial(function, part) for part in torch.split(x, batch)])
        return torch.cat([part.cpu() for part in parts])


def random_subset(data: Dataset, n: int, *, seed: int = 0) -> Tensor:
    """Returns n random states of a data set, or all if it has fewer."""
    rows = torch.randperm(len(data), generator=generator(seed, "exam data"))[:n]
    return data.take(rows.sort().values)
