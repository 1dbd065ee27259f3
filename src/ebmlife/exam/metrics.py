"""The metrics of an exam: numbers measured on all chains at one step, and the convergence of parallel chains.

To add a metric, add it to `METRICS`. It is then recorded, printed and drawn. It changes no verdict unless
`ebmlife.exam.verdict.JUDGED` lists it too.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ebmlife.errors import BadInput

if TYPE_CHECKING:
    from ebmlife.exam.reference import Reference

_PAIRED = 1000  # states whose pairs an exam compares: half a million distances are enough
FEWEST = 4  # draws of a chain: ArviZ splits each chain in two and ranks the draws


@dataclass(frozen=True)
class Evaluation:
    """What metrics are computed from: all chains at one step, or a set of data, which has states only."""

    x: Tensor  # (B, ...), on the CPU
    features: Tensor | None = None  # (B, D)
    reference: "Reference | None" = None  # the data that samples are compared with
    gradient: float | None = None  # mean |grad E| over chains and recent steps; None at the start
    energies: Tensor | None = None  # float64 (B,); None for a model that has only a score
    classes: Tensor | None = None  # (B,); None without a classifier
    start_classes: Tensor | None = None  # (B,)


@dataclass(frozen=True)
class Metric:
    """A number measured on all chains at one step.

    Args:
        of: Computes the metric.
        applies: Whether the metric exists for these states; where it does not, it is not recorded.
        on_data: Whether the metric is also computed on random sets of data, which gives its range for good samples. It
            may then use the states `x` only.
    """

    of: Callable[[Evaluation], float | None]
    applies: Callable[[Evaluation], bool] = lambda _: True
    on_data: bool = False


def outside(x: Tensor) -> float:
    """Returns the fraction of values outside [-1, 1].

    Args:
        x: States (B, ...).
    """
    return (x.abs() > 1).double().mean().item()


def contrast(x: Tensor) -> float:
    """Returns the mean over images of the standard deviation of their pixels.

    Args:
        x: Images (B, C, H, W).
    """
    return x.double().flatten(1).std(1).mean().item()


def variation(x: Tensor) -> float:
    """Returns the total variation per pixel: mean |difference| of horizontal plus that of vertical neighbors.

    Args:
        x: Images (B, C, H, W).
    """
    across, down = x.diff(dim=-1).abs(), x.diff(dim=-2).abs()
    return (across.double().mean() + down.double().mean()).item()


def diversity(x: Tensor) -> float:
    """Returns the mean Euclidean distance between pairs of states.

    Args:
        x: States (B, ...).
    """
    return torch.pdist(x.flatten(1)).mean().item()


def _are_images(evaluation: Evaluation) -> bool:
    return evaluation.x.ndim == 4


def _have_neighbors(evaluation: Evaluation) -> bool:
    """Whether pixels have neighbors in both directions: images are more than a single row or column."""
    return evaluation.x.ndim == 4 and min(evaluation.x.shape[-2:]) >= 2


def _have_features(evaluation: Evaluation) -> bool:
    return evaluation.features is not None


def _have_energies(evaluation: Evaluation) -> bool:
    return evaluation.energies is not None


def _have_classes(evaluation: Evaluation) -> bool:
    return evaluation.classes is not None


def _distance(evaluation: Evaluation) -> float:
    assert evaluation.reference is not None
    assert evaluation.features is not None
    return evaluation.reference.distance(evaluation.features)


def _mean_energy(evaluation: Evaluation) -> float:
    assert evaluation.energies is not None
    return evaluation.energies.mean().item()


def _energy_spread(evaluation: Evaluation) -> float:
    assert evaluation.energies is not None
    return evaluation.energies.std().item()


def _agreement(evaluation: Evaluation) -> float:
    assert evaluation.classes is not None
    assert evaluation.start_classes is not None
    return (evaluation.classes == evaluation.start_classes).double().mean().item()


METRICS: dict[str, Metric] = {
    "distance": Metric(_distance, _have_features),
    "outside": Metric(lambda evaluation: outside(evaluation.x), _are_images, on_data=True),
    "contrast": Metric(lambda evaluation: contrast(evaluation.x), _have_neighbors, on_data=True),
    "variation": Metric(lambda evaluation: variation(evaluation.x), _have_neighbors, on_data=True),
    "diversity": Metric(lambda evaluation: diversity(evaluation.x[:_PAIRED]), on_data=True),
    "gradient": Metric(lambda evaluation: evaluation.gradient),
    "energy": Metric(_mean_energy, _have_energies),
    "energy_spread": Metric(_energy_spread, _have_energies),
    "agreement": Metric(_agreement, _have_classes),
}


def measure(evaluation: Evaluation) -> dict[str, float | None]:
    """Returns all metrics that apply to the chains at one step, by name."""
    return {name: metric.of(evaluation) for name, metric in METRICS.items() if metric.applies(evaluation)}


def measure_data(x: Tensor) -> dict[str, float]:
    """Returns the metrics of states (B, ...) that are computed on data too, by name."""
    evaluation = Evaluation(x)
    found = {
        name: metric.of(evaluation) for name, metric in METRICS.items() if metric.on_data and metric.applies(evaluation)
    }
    return {name: value for name, value in found.items() if value is not None}


def import_arviz() -> Any:
    """Returns the package ArviZ, or raises BadInput with the command that installs it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it announces its next version once a day
            import arviz

        return arviz
    except ImportError as error:
        raise BadInput(
            "an exam compares chains with ArviZ, which is not installed; pip install 'ebmlife[exam]'"
        ) from error


def convergence(draws: NDArray[np.float64]) -> tuple[float, float] | None:
    """Returns R-hat and the effective sample size of parallel chains, rank-normalized and split.

    An R-hat near 1 means that neither chains nor their first and second halves differ.

    Args:
        draws: Draws (chains, draws) of one number.

    Returns:
        (R-hat, effective sample size), or None with fewer than 2 chains or 4 draws, or if nothing moves.
    """
    if draws.shape[0] < 2 or draws.shape[1] < FEWEST or np.ptp(draws) == 0:
        return None
    az = import_arviz()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # from chains that do not move or that overflow
        rhat, ess = float(az.rhat(draws)), float(az.ess(draws))
    return (rhat, ess) if np.isfinite([rhat, ess]).all() else None
