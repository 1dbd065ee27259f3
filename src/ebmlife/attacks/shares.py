"""Accuracies with what is known of them."""

from math import sqrt
from typing import NamedTuple

_Z = 1.959963984540054  # the normal distribution's 97.5 % point


class Share(NamedTuple):
    right: int
    of: int

    @property
    def value(self) -> float:
        return self.right / self.of

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval."""
        n, p = self.of, self.value
        centre, half = p + _Z**2 / (2 * n), _Z * sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2))
        scale = 1 + _Z**2 / n
        return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)

    @property
    def low(self) -> float:
        return self.interval[0]

    @property
    def high(self) -> float:
        return self.interval[1]

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"
