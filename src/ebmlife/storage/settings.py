"""Compares the settings of saved work with those that are requested."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

_ROUNDING = 0.01  # relative: another machine, or another number of threads, rounds differently
_LONGEST = 80  # characters of a setting's value in an error


def differences(saved: Mapping[str, Any], requested: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Returns the named settings that differ, each as 'name: saved -> requested', with None for missing ones."""
    changed = [name for name in sorted(names) if not alike(saved.get(name), requested.get(name))]
    return [f"{name}: {_shown(saved.get(name))} -> {_shown(requested.get(name))}" for name in changed]


def alike(old: object, new: object) -> bool:
    """Whether two settings are the same. Lists of floats are measurements and may differ by rounding."""
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return all(a == b or _near(a, b) for a, b in zip(old, new, strict=True))
    return old == new


def _near(a: object, b: object) -> bool:
    if not isinstance(a, float) or not isinstance(b, float):
        return False
    return math.isclose(a, b, rel_tol=_ROUNDING) or (math.isnan(a) and math.isnan(b))


def _shown(value: object) -> str:
    rounded = [f"{item:.4g}" if isinstance(item, float) else item for item in value] if isinstance(value, list) else []
    text = f"[{', '.join(map(str, rounded))}]" if rounded else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
