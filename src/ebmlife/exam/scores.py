"""One number for how far a model's samples are from its data."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ebmlife.data import Dataset, digits
from ebmlife.errors import BadInput
from ebmlife.exam.digits import digits_classifier
from ebmlife.exam.frechet import Moments, frechet_distance, moments
from ebmlife.model import Model


@dataclass(frozen=True)
class Score:
    name: str  # carries the number of images: fd_digits_2k
    value: float
    count: int


def fd_digits(samples: Iterable[Tensor]) -> Score:
    """The Fréchet distance of 8x8 grey images to all 1,797 digits, in features of a small classifier. It is no FID."""
    of_samples = moments(map(digits_classifier().features, samples))
    value = frechet_distance(_of_digits(), of_samples)
    return Score(f"fd_digits_{shortened(of_samples.count)}", value, of_samples.count)


def score_samples(model: Model, *, n: int, steps: int, seed: int = 0) -> Score:
    """The score that fits the model's data, of n samples after so many Langevin steps from its start."""
    if model.recipe.data.kind != "digits":
        raise BadInput(f"there is no score for data {model.recipe.data.kind!r} yet; only for 'digits'")
    return fd_digits(model.stream(n, steps=steps, seed=seed))


def _of_digits() -> Moments:
    return moments(map(digits_classifier().features, in_batches(digits())))


def in_batches(data: Dataset, size: int = 512) -> Iterator[Tensor]:
    """All of a data set, in order."""
    for first in range(0, len(data), size):
        yield data.take(torch.arange(first, min(len(data), first + size)))


def shortened(count: int) -> str:
    """50000 -> '50k'."""
    return f"{count // 1000}k" if count % 1000 == 0 else str(count)
