"""Scores of samples: Fréchet distances, KID, precision and recall, by names that include the sample size."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from ebmlife.data import Dataset, digits, mnist
from ebmlife.distributed import SINGLE_PROCESS, Ranks
from ebmlife.errors import BadInput
from ebmlife.exam.digits import digits_classifier
from ebmlife.exam.features import FEATURE_SETS, SmallClassifier, default_features
from ebmlife.exam.frechet import Moments, frechet_distance, moments, shortened
from ebmlife.exam.inception import FEWEST, inception, scores
from ebmlife.exam.mnist import FOLDER, mnist_classifier
from ebmlife.exam.reference import cached_features
from ebmlife.runs.model import Model

Progress = Callable[[Iterable[Tensor], int, str], Iterable[Tensor]]  # (batches, number of images, description)


def _silent(batches: Iterable[Tensor], total: int, what: str) -> Iterable[Tensor]:
    return batches


def score_samples(
    model: Model,
    data: Dataset,
    *,
    n: int,
    steps: int,
    seed: int = 0,
    progress: Progress = _silent,
    ranks: Ranks = SINGLE_PROCESS,
) -> dict[str, float]:
    """Draws samples from a model and returns their scores by name.

    Models of digits have `fd_digits`, models of MNIST `fd_mnist`. Models of other images have FID, KID, precision and
    recall, against as many images of the data.

    Args:
        model: The model.
        data: Data set that samples are compared with.
        n: Number of samples.
        steps: Number of Langevin steps from the model's start.
        seed: Seed of the samples.
        progress: Wraps the batches, to show progress.
        ranks: Processes that share the sampling; each of them returns what a single process would.
    """
    if len(data.shape) != 3:
        raise BadInput(f"scores need images, but the data have shape {tuple(data.shape)}")
    name = default_features(None, model.recipe.data, model.shape)
    small = FEATURE_SETS[name].classifier
    if small is not None:
        with ranks.rank0_first():
            classifier = small()
        made = _features(model.blocks(n, steps=steps, seed=seed, scope="fid"), classifier.features, ranks)
        found = moments(progress(made, n, f"samples, {steps} steps"))
        return {f"fd_{name}_{shortened(n)}": frechet_distance(_moments(data, classifier), found)}
    if min(n, len(data)) < FEWEST:
        got = f"--n {n}; raise it" if n < FEWEST else f"a data set of {len(data)} images; use a larger one"
        raise BadInput(f"FID needs at least {FEWEST} samples and as many images of data, got {got}")
    with ranks.rank0_first():
        network = inception()
    reference = reference_features(data, n, progress=progress, ranks=ranks)
    made = _features(model.blocks(n, steps=steps, seed=seed, batch=32, scope="fid"), network, ranks)
    return scores(torch.cat(list(progress(made, n, f"samples, {steps} steps"))), reference)


def _features(
    blocks: Sequence[Callable[[], Tensor]], features: Callable[[Tensor], Tensor], ranks: Ranks
) -> Iterator[Tensor]:
    """Yields the features of batches of images, in their order; the ranks share the batches."""

    def of(make: Callable[[], Tensor]) -> Tensor:
        return features(make())

    return ranks.in_order([partial(of, make) for make in blocks])


def fd_digits(samples: Iterable[Tensor]) -> float:
    """Returns the Fréchet distance to all 1,797 digits, in features of a small classifier. It is not FID.

    Args:
        samples: Images (B, 1, 8, 8) in [-1, 1], batch by batch.
    """
    classifier = digits_classifier()
    return frechet_distance(_moments(digits(), classifier), moments(map(classifier.features, samples)))


def fd_mnist(samples: Iterable[Tensor], *, folder: str = FOLDER) -> float:
    """Returns the Fréchet distance to the 60,000 training images of MNIST, in features of a small classifier.

    Args:
        samples: Images (B, 1, 28, 28) in [-1, 1], batch by batch.
        folder: Folder of the images.
    """
    classifier = mnist_classifier()
    return frechet_distance(_moments(mnist(folder), classifier), moments(map(classifier.features, samples)))


def reference_features(data: Dataset, n: int, *, progress: Progress = _silent, ranks: Ranks = SINGLE_PROCESS) -> Tensor:
    """Returns Inception features (n, 2048) of n images, evenly spaced in the data set; they are cached.

    Args:
        data: Data set of images.
        n: Number of images, or all if there are fewer.
        progress: Wraps the batches, to show progress.
        ranks: Processes that share the batches.
    """
    rows = torch.linspace(0, len(data) - 1, min(n, len(data))).round().long()

    def make() -> Tensor:
        made = _features([partial(data.take, part) for part in torch.split(rows, 32)], inception(), ranks)
        return torch.cat(list(progress(made, len(rows), "data")))

    return cached_features(f"inception-features-{_fingerprint(data, rows)}", make, ranks=ranks)


def _fingerprint(data: Dataset, rows: Tensor) -> str:
    """Identifies a data set by its size and some of its images."""
    some = data.take(rows[:: max(1, len(rows) // 64)])
    digest = hashlib.sha256(f"{len(data)}/{tuple(data.shape)}/{len(rows)}".encode())
    digest.update(some.numpy().tobytes())
    return digest.hexdigest()[:16]


def _moments(data: Dataset, classifier: SmallClassifier) -> Moments:
    return moments(map(classifier.features, in_batches(data)))


def in_batches(data: Dataset, size: int = 512) -> Iterator[Tensor]:
    """Yields all states of a data set, in order."""
    for first in range(0, len(data), size):
        yield data.take(torch.arange(first, min(len(data), first + size)))
