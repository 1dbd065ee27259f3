"""Correlations over updates of a training's energy difference and gradient, for the paper's diagnostic plot."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Correlations(NamedTuple):
    """Correlations by lag in updates."""

    cross: dict[int, float]  # of the energy difference and the gradient
    difference: dict[int, float]  # auto-correlation
    gradient: dict[int, float]


def correlations(energy_difference: NDArray[np.float64], gradient: NDArray[np.float64]) -> Correlations:
    """Returns the correlations over the last 5,000 updates.

    The mean of the energy difference is not subtracted: it should be 0, and a plot must show if it is not.

    Args:
        energy_difference: U(x+) - U(x-) of each update.
        gradient: Mean |grad E| along the chains of each update.
    """
    recent = slice(-5000, None)
    difference, grad = _unit(energy_difference[recent], center=False), _unit(gradient[recent], center=True)
    both, after = range(-15, 16), range(16)
    return Correlations(
        {lag: correlation(difference, grad, lag) for lag in both},
        {lag: correlation(difference, difference, lag) for lag in after},
        {lag: correlation(grad, grad, lag) for lag in after},
    )


def correlation(a: NDArray[np.float64], b: NDArray[np.float64], lag: int) -> float:
    """Returns the sum of a(t + lag) b(t) over the updates t where both exist, divided by len(a) as the authors do."""
    if abs(lag) >= len(a):
        return 0.0
    later, earlier = (a[lag:], b[: len(b) - lag]) if lag >= 0 else (a[:lag], b[-lag:])
    return float((later * earlier).sum() / len(a))


def _unit(values: NDArray[np.float64], *, center: bool) -> NDArray[np.float64]:
    values = values - values.mean() if center else values
    scale = np.sqrt(np.mean(values**2))
    return values / scale if scale > 0 else values
