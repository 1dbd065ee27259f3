"""Validates values that a page reads from files: JSON can hold anything."""

import math
from collections.abc import Mapping
from typing import Any, get_args

from ebmlife.errors import BadInput
from ebmlife.exam import LifeCycle
from ebmlife.exam.verdict import Verdict

_RESULTS = 1000  # most metrics on a page
_SETTINGS = {
    "threat": str,
    "gradient": str,
    "loss": str,
    "steps": int,
    "replicas": int,
    "verify": int,
    "langevin_steps": int,
    "step_size": float,
    "radius": float,
}


def is_number(value: Any) -> bool:
    """Returns whether a page can show the value; it shows NaN and infinity too."""
    return isinstance(value, float) or (type(value) is int and abs(value) < 2**1000)


def check_cycle(cycle: LifeCycle) -> None:
    """Raises BadInput unless a page can show the exam."""
    steps, columns = cycle.steps, list(cycle.metrics.values())
    sound = (
        isinstance(steps, list)
        and all(type(step) is int and 0 <= step < 2**53 for step in steps)
        and bool(steps)
        and steps == sorted(set(steps))
        and cycle.verdict in get_args(Verdict)
        and type(cycle.stable_until) is int
        and all(isinstance(reason, str) for reason in cycle.reasons)
        and type(cycle.settings.get("chains")) is int
        and isinstance(cycle.settings.get("distance"), str)
        and "distance" in cycle.metrics
        and all(isinstance(column, list) and len(column) == len(steps) for column in columns)
        and all(value is None or is_number(value) for column in columns for value in column)
        and all(len(both) == 2 and all(map(_is_finite, both)) for both in cycle.ranges.values())
        and len(cycle.strip) == len(steps)
        and cycle.strip.ndim in (3, 5)
    )
    if not sound:
        raise BadInput("life-cycle.json and life-cycle.safetensors do not fit each other, or hold no exam")


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raises BadInput unless a page can show the settings of an attack."""
    for name, kind in _SETTINGS.items():
        value = settings.get(name)
        if not (_is_finite(value) if kind is float else type(value) is kind):
            raise BadInput(f"setting {name} of the attack is {value!r}, not of type {kind.__name__}")


def check_results(results: Any) -> None:
    """Raises BadInput unless these are metrics by command and name."""
    groups: list[Any] = list(results.values()) if isinstance(results, dict) else [None]
    if not all(isinstance(group, dict) and all(map(is_number, group.values())) for group in groups):
        raise BadInput("results.json must hold metrics by command; repair or remove it")
    if sum(len(group) for group in groups) > _RESULTS:
        raise BadInput(f"results.json holds more than {_RESULTS:,} metrics")


def _is_finite(value: Any) -> bool:
    return is_number(value) and math.isfinite(value)
