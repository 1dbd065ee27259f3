"""Detects a training that diverges, relative to the normal energy difference of that run."""

from statistics import median
from typing import Any

import torch

from ebmlife.errors import Diverged

WINDOW = 50  # updates of a median; also the warm-up, because the first updates of any training are irregular
FAR = 1e3  # times the normal scale
PATIENCE = 25  # updates in a row: healthy trainings have single spikes too
PULL = 10.0  # times the noise of a Langevin step


class Divergence:
    """Checks the energy difference d_t = mean U(x+) - mean U(x-) and the gradient g_t = mean |grad E| of every update:

        normal_t = min over u < t of median(|d_{u-49}|, ..., |d_u|),
        far_t = |d_t| > 1000 normal_t  and  g_t > 10 balance,

    A training has diverged if an energy is not finite, or if `far` has held for 25 updates in a row. `normal` is
    undefined during the first 50 updates. The minimum is over the whole run, so that slow exponential growth is
    detected too.

    Args:
        balance: The gradient at which drift and noise of a Langevin step are equally long, 2 sqrt(D) / step_size. At
            first an energy grows by orders of magnitude until it moves its chains. This is not a divergence, and its
            gradient stays near `balance`, whatever the temperature.
        limit: An absolute bound of |d_t|. None: no absolute bound.
    """

    def __init__(self, *, balance: float = 0.0, limit: float | None = None) -> None:
        self.balance, self.limit = balance, limit
        self._recent = [0.0] * WINDOW  # |d|, a ring
        self._seen = 0  # updates checked
        self._normal = 0.0  # the lowest median, after the warm-up
        self._far = 0  # updates in a row that were far

    def check(self, *, of_data: float, of_samples: float, difference: float, gradient: float, update: int) -> None:
        """Checks one update.

        Raises:
            Diverged: The training has diverged.
        """
        for name, value in (("data", of_data), ("samples", of_samples)):
            if not abs(value) < float("inf"):  # NaN compares false
                raise Diverged(f"the energy of the {name} is {value} at update {update}", since=self._since(update))
        size, message = abs(difference), f"the energy difference is {difference:.3g} at update {update}"
        if self.limit is not None and size > self.limit:
            raise Diverged(f"{message}, beyond {self.limit:.3g} (--explosion)", since=self._since(update))
        far = self._seen >= WINDOW and size > FAR * self._normal and gradient > PULL * self.balance
        self._far = self._far + 1 if far else 0
        if self._far >= PATIENCE:
            since = update - PATIENCE + 1
            raise Diverged(
                f"{message} and has been beyond {FAR:g} times its normal size since update {since}; "
                f"normal for this run is {self._normal:.3g}",
                since=since,
            )
        self._remember(size)

    def _since(self, update: int) -> int | None:
        """Returns the first of the updates just before this one that were far from normal; None if there are none."""
        return update - self._far if self._far else None

    def _remember(self, size: float) -> None:
        self._recent[self._seen % WINDOW] = size
        self._seen += 1
        if self._seen >= WINDOW:
            scale = median(self._recent)
            self._normal = scale if self._seen == WINDOW else min(self._normal, scale)

    def state_dict(self) -> dict[str, Any]:
        return {
            "recent": torch.tensor(self._recent, dtype=torch.float32),  # checked values have this precision
            "seen": self._seen,
            "normal": self._normal,
            "far": self._far,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._recent = state["recent"].tolist()
        self._seen, self._normal, self._far = state["seen"], state["normal"], state["far"]
