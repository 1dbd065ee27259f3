"""Whether parallel chains have forgotten where they began: R-hat and effective sample size, through ArviZ."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebmlife.errors import BadInput

FEWEST = 4  # draws of a chain: ArviZ splits each in two and ranks what is left


def arviz() -> Any:
    """The package, or a line on how to get it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it announces its next version once a day
            import arviz

        return arviz
    except ImportError as error:
        raise BadInput(
            "the exam compares chains through ArviZ, which is not here; pip install 'ebmlife[exam]'"
        ) from error


def convergence(draws: NDArray[np.float64]) -> tuple[float, float] | None:
    """(R-hat, effective sample size) of draws (chains, draws), rank-normalised and split; None where too few.

    R-hat near 1: chains cannot be told apart, nor their first halves from their second.
    """
    if draws.shape[0] < 2 or draws.shape[1] < FEWEST or np.ptp(draws) == 0:
        return None
    az = arviz()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of chains that stand still or overflow: they get None
        rhat, ess = float(az.rhat(draws)), float(az.ess(draws))
    return (rhat, ess) if np.isfinite([rhat, ess]).all() else None  # chains that stand still have none
