"""How a training's energy difference and gradient go together over updates: what the paper's diagnostic plot is of."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Correlations(NamedTuple):
    """By lag in updates."""

    cross: dict[int, float]  # of difference and gradient
    difference: dict[int, float]  # with itself
    gradient: dict[int, float]


def correlations(energy_difference: NDArray[np.float64], gradient: NDArray[np.float64]) -> Correlations:
    """Of the last 5,000 updates. The difference's mean is not taken off: it matters, and should be 0."""
    recent = slice(-5000, None)
    difference, grad = _unit(energy_difference[recent], centre=False), _unit(gradient[recent], centre=True)
    both, after = range(-15, 16), range(16)
    return Correlations(
        {lag: correlation(difference, grad, lag) for lag in both},
        {lag: correlation(difference, difference, lag) for lag in after},
        {lag: correlation(grad, grad, lag) for lag in after},
    )


def correlation(a: NDArray[np.float64], b: NDArray[np.float64], lag: int) -> float:
    """mean of a(t + lag) b(t) over the updates t where both exist, weighted as the authors' plot does (1 / length)."""
    if abs(lag) >= len(a):
        return 0.0
    later, earlier = (a[lag:], b[: len(b) - lag]) if lag >= 0 else (a[:lag], b[-lag:])
    return float((later * earlier).sum() / len(a))


def _unit(values: NDArray[np.float64], *, centre: bool) -> NDArray[np.float64]:
    values = values - values.mean() if centre else values
    scale = np.sqrt(np.mean(values**2))
    return values / scale if scale > 0 else values
