"""The features in which an exam measures distances to the data.

To add a set of features, add it to `FEATURE_SETS`. `default_features` chooses the default set for a run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from torch.nn import functional as F

from ebmlife.errors import BadInput, by_name
from ebmlife.exam.config import FAST_FEATURES
from ebmlife.exam.digits import digits_classifier
from ebmlife.exam.inception import inception
from ebmlife.exam.mnist import mnist_classifier
from ebmlife.recipes.schema import Part
from ebmlife.runs.build import describe

_COARSE = 8  # pixels: images whose own values are the features are averaged to this size at most


@dataclass(frozen=True)
class Features:
    """A function from states to feature vectors, in which distances to the data are measured.

    Args:
        name: Name of the distance; the number of chains is appended to it.
        of: Maps states (B, ...) to features (B, D).
        cached: Whether the features of data are kept in the cache, because they take minutes to compute.
    """

    name: str
    of: Callable[[Tensor], Tensor]
    cached: bool = False


def plain(x: Tensor) -> Tensor:
    """Returns the states' own values (B, D); images are averaged to 8x8."""
    if x.ndim == 4 and x.shape[-1] > _COARSE:
        x = F.adaptive_avg_pool2d(x, _COARSE)
    return x.flatten(1)


class SmallClassifier(Protocol):
    """A classifier of one data set whose hidden layer is the features of a Fréchet distance."""

    def __call__(self, x: Tensor) -> Tensor: ...

    def features(self, x: Tensor) -> Tensor:
        """Returns the features (B, D)."""
        ...


PLAIN = Features("moments", plain)
DIGITS = Features("fd_digits", lambda x: digits_classifier().features(x.cpu()))
MNIST = Features("fd_mnist", lambda x: mnist_classifier().features(x.cpu()))


@dataclass(frozen=True)
class FeatureSet:
    """Features by a name that can be chosen, and the states that they are for."""

    make: Callable[[], Features]
    fits: Callable[[tuple[int, ...]], bool] = lambda shape: True
    states: str = "any states"
    trace: Features | None = None  # for R-hat, where `make` is too slow to be evaluated 400 times
    classifier: Callable[[], SmallClassifier] | None = None  # whose hidden layer the features are


def _hidden_layer(features: Features, classifier: Callable[[], SmallClassifier], shape: tuple[int, ...]) -> FeatureSet:
    states = f"images of shape {shape}"
    return FeatureSet(lambda: features, lambda found: found == shape, states, classifier=classifier)


FEATURE_SETS: dict[str, FeatureSet] = {
    "fid": FeatureSet(
        lambda: Features("fid", inception(), cached=True),
        lambda shape: len(shape) == 3 and shape[0] in (1, 3),
        "gray or color images",
        trace=PLAIN,
    ),
    "digits": _hidden_layer(DIGITS, digits_classifier, (1, 8, 8)),
    "mnist": _hidden_layer(MNIST, mnist_classifier, (1, 28, 28)),
    "moments": FeatureSet(lambda: PLAIN),
}


def find_features(name: str, shape: tuple[int, ...]) -> tuple[Features, Features]:
    """Returns (features of the distance, features of R-hat) for states of this shape.

    Args:
        name: One of `FEATURE_SETS`.
        shape: Shape of one state.
    """
    chosen = by_name(FEATURE_SETS, name, "features")
    if not chosen.fits(shape):
        raise BadInput(f"--features {name} needs {chosen.states}, but the states have shape {shape}; use moments")
    features = chosen.make()
    return features, chosen.trace or features


def default_features(name: str | None, data: Part, shape: tuple[int, ...]) -> str:
    """Returns the name of the features for a model of such data, which declare their own.

    Args:
        name: The name in `ExamConfig.features`; None for the default, "fast" for the default without Inception.
        data: The run's data set.
        shape: Shape of one state.
    """
    if name not in (None, FAST_FEATURES):
        return str(name)
    declared = describe(data).features_for(shape)
    return "moments" if declared == "fid" and name == FAST_FEATURES else declared
