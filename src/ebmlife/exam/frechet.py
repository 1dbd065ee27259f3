"""The Fréchet distance between two sets of features; with Inception features it is FID."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ebmlife.errors import BadInput


@dataclass(frozen=True)
class Moments:
    """Mean and covariance of features, in float64.

    Attributes:
        mean: Mean (D,).
        covariance: Covariance (D, D).
        count: Number of feature vectors.
    """

    mean: Tensor
    covariance: Tensor
    count: int

    @cached_property
    def root(self) -> Tensor:
        """C^(1/2), computed once: many sets are compared with one."""
        values, vectors = torch.linalg.eigh(self.covariance)
        root: Tensor = (vectors * values.clamp_min(0).sqrt()) @ vectors.T
        return root


def moments(batches: Iterable[Tensor]) -> Moments:
    """Returns the mean and covariance of features. Memory does not grow with their number.

    Args:
        batches: Features (B, D), batch by batch.
    """
    count, total, square = 0, torch.zeros(0), torch.zeros(0)
    shift = torch.zeros(0)
    for batch in batches:
        features = batch.detach().double().cpu()
        if count == 0:
            shift = features[0]  # close to the mean, so that the sum of squares loses no digits
            total, square = torch.zeros_like(shift), torch.zeros(len(shift), len(shift), dtype=torch.float64)
        features = features - shift
        count += len(features)
        total += features.sum(0)
        square += features.T @ features
    if count < 2:
        raise BadInput(f"a Fréchet distance needs at least 2 feature vectors on each side, got {count}")
    mean = total / count
    covariance = (square - count * torch.outer(mean, mean)) / (count - 1)
    return Moments(mean + shift, covariance, count)


def frechet_distance(a: Moments, b: Moments) -> float:
    """Returns |m_a - m_b|^2 + tr(C_a + C_b - 2 (C_a C_b)^(1/2)).

    The eigenvalues of C_a C_b are those of C_a^(1/2) C_b C_a^(1/2), which is symmetric: its root is real and stable,
    even with fewer feature vectors than features.

    Args:
        a: Moments of one set.
        b: Moments of the other set.
    """
    eigenvalues = torch.linalg.eigvalsh(a.root @ b.covariance @ a.root).clamp_min(0)
    trace = a.covariance.trace() + b.covariance.trace() - 2 * eigenvalues.sqrt().sum()
    return float((a.mean - b.mean).square().sum() + trace)


def shortened(count: int) -> str:
    """Returns a sample size as it appears in the name of a score: 50000 -> '50k'."""
    return f"{count // 1000}k" if count % 1000 == 0 else str(count)
