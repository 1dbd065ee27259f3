"""Values that change over training: learning rates, numbers of steps, rejuvenation probabilities."""

import sys
from dataclasses import dataclass

_LARGEST = sys.float_info.max  # whole numbers can be larger


@dataclass(frozen=True)
class Phase:
    from_update: int
    value: float


@dataclass(frozen=True)
class Piecewise:
    """update -> the value of the last phase that has begun."""

    phases: tuple[Phase, ...]

    def __post_init__(self) -> None:
        starts = [phase.from_update for phase in self.phases]
        if not starts or starts[0] != 0 or starts != sorted(set(starts)):
            raise ValueError(f"phases must begin at update 0 and go up, got {starts}")
        if not all(-_LARGEST <= phase.value <= _LARGEST for phase in self.phases):  # NaN is not
            raise ValueError("values must be finite")

    def __call__(self, update: int) -> float:
        return next(phase.value for phase in reversed(self.phases) if update >= phase.from_update)

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(phase.value for phase in self.phases)


def constant(value: float) -> Piecewise:
    return Piecewise((Phase(0, value),))


@dataclass(frozen=True)
class LinearDecay:
    """A schedule that falls in a straight line: value(update) * max(0, 1 - update / until)."""

    schedule: Piecewise
    until: int

    def __call__(self, update: int) -> float:
        return self.schedule(update) * max(0.0, 1 - update / self.until)


Schedule = Piecewise | float  # what callers may give


def scheduled(value: Schedule) -> Piecewise:
    return value if isinstance(value, Piecewise) else constant(value)


def parse(text: str) -> Piecewise:
    """'1e-4' or '1e-4, 1e-5 @ 50000, 1e-6 @ 75000': values and the updates from which they hold; or 'gamma_anneal'."""
    if text.strip() == "gamma_anneal":
        return GAMMA_ANNEAL
    phases = []
    for part in text.split(","):
        value, _, update = part.partition("@")
        phases.append(Phase(int(update) if update.strip() else 0, float(value)))
    return Piecewise(tuple(phases))


GAMMA_ANNEAL = Piecewise(  # gamma_anneal in the paper
    (Phase(0, 1e-4), Phase(50_000, 1e-5), Phase(75_000, 1e-6), Phase(100_000, 1e-7), Phase(125_000, 1e-8))
)
