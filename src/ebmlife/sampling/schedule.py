"""Schedules: values that change over training, such as learning rates and numbers of Langevin steps."""

import sys
from dataclasses import dataclass

_LARGEST = sys.float_info.max  # whole numbers can be larger


@dataclass(frozen=True)
class Phase:
    """A value that holds from an update on."""

    from_update: int
    value: float


@dataclass(frozen=True)
class Piecewise:
    """A piecewise constant schedule: at an update, the value of the last phase that has started."""

    phases: tuple[Phase, ...]

    def __post_init__(self) -> None:
        starts = [phase.from_update for phase in self.phases]
        if not starts or starts[0] != 0 or starts != sorted(set(starts)):
            raise ValueError(f"phases must start at update 0 and increase, got {starts}")
        if not all(-_LARGEST <= phase.value <= _LARGEST for phase in self.phases):  # NaN is not
            raise ValueError("values must be finite")

    def __call__(self, update: int) -> float:
        return next(phase.value for phase in reversed(self.phases) if update >= phase.from_update)

    @property
    def values(self) -> tuple[float, ...]:
        """The values of all phases."""
        return tuple(phase.value for phase in self.phases)


def constant(value: float) -> Piecewise:
    """Returns a schedule that always has the same value."""
    return Piecewise((Phase(0, value),))


@dataclass(frozen=True)
class LinearDecay:
    """A schedule times a linear decay to 0: schedule(update) * max(0, 1 - update / until)."""

    schedule: Piecewise
    until: int

    def __call__(self, update: int) -> float:
        return self.schedule(update) * max(0.0, 1 - update / self.until)


Schedule = Piecewise | float


def scheduled(value: Schedule) -> Piecewise:
    """Returns a schedule as it is, and a number as a constant schedule."""
    return value if isinstance(value, Piecewise) else constant(value)


def parse(text: str) -> Piecewise:
    """Parses a schedule: '1e-4', or '1e-4, 1e-5 @ 50000' with the updates from which values hold, or 'gamma_anneal'."""
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
