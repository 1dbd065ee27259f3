"""Checks saved values before they are used."""

import math
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor

from ebmlife.errors import BadInput

T = TypeVar("T")
_COUNTS = (torch.int64, torch.int32)  # dtypes of counts: of walks, batches, averages


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields all values in nested dictionaries and lists, with names as in a checkpoint: 'trainer/ebm/net/bias'."""
    if isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from leaves(item, f"{name}/{key}" if name else str(key))
    else:
        yield name, value


def not_finite(state: Any) -> str | None:
    """Describes the first tensor or number that is not finite; None if all are."""
    for name, value in leaves(state):
        if isinstance(value, Tensor) and value.is_floating_point() and not value.isfinite().all():
            bad = int((~value.isfinite()).sum())
            return f"{name} is not finite ({bad:,} of {value.numel():,} values)"
        if isinstance(value, float) and not math.isfinite(value):
            return f"{name} is {value}"
    return None


def negative(state: Any) -> str | None:
    """Describes the first tensor of integers with a value below zero; None if there is none. All are counts."""
    counts = ((name, value) for name, value in leaves(state) if isinstance(value, Tensor) and value.dtype in _COUNTS)
    return next((f"{name} has counts below zero" for name, value in counts if bool((value < 0).any())), None)


def mismatch(found: Any, like: Any, name: str = "") -> str | None:
    """Describes the first difference of a state from a correct one in keys, types, dtypes or shapes; None if equal.

    An empty dictionary in `like` matches any dictionary.
    """
    what = name or "the state"
    if isinstance(like, Tensor):
        return _tensor_mismatch(found, like, what)
    if isinstance(like, dict):
        if not isinstance(found, dict):
            return f"{what} is {_kind(found)}, not {_kind(like)}"
        for key in like:
            if key not in found:
                return f"{_joined(name, key)} is missing"
        for key in found if like else ():
            if key not in like:
                return f"{_joined(name, key)} is unknown"
        pairs = [(found[key], like[key], _joined(name, key)) for key in like]
    elif isinstance(like, list | tuple):
        if not isinstance(found, list | tuple) or len(found) != len(like):
            return f"{what} is {_kind(found)}, not {_kind(like)}"
        pairs = [(item, right, _joined(name, i)) for i, (item, right) in enumerate(zip(found, like, strict=True))]
    else:
        return None if _same_kind(found, like) else f"{what} is {_kind(found)}, not {_kind(like)}"
    return next((first for pair in pairs if (first := mismatch(*pair)) is not None), None)


def part(state: Any, *names: str) -> dict[str, Any]:
    """Returns a dictionary inside a state, by the names of the dictionaries that contain it."""
    for depth, name in enumerate(names, 1):
        if not isinstance(state, dict) or not isinstance(state.get(name), dict):
            raise BadInput(f"the checkpoint has no {'/'.join(names[:depth])}")
        state = state[name]
    found: dict[str, Any] = state
    return found


def restored(what: str, load: Callable[[], T]) -> T:
    """Returns the result of `load`, which reads arbitrary values. Raises BadInput, which names `what`, if it fails."""
    try:
        return load()
    except (BadInput, KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = f"there is no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise BadInput(f"{what} cannot be used: {reason}") from error


def _tensor_mismatch(found: Any, like: Tensor, what: str) -> str | None:
    if not isinstance(found, Tensor):
        return f"{what} is {_kind(found)}, not {_kind(like)}"
    if found.dtype != like.dtype or found.shape != like.shape:
        return f"{what} is {_kind(found)}, not {_kind(like)}"
    return None


def _same_kind(found: Any, like: Any) -> bool:
    if isinstance(like, int) and not isinstance(like, bool):
        return type(found) is int and 0 <= found < 2**63
    if isinstance(like, float):
        return type(found) in (int, float) and math.isfinite(found)
    return type(found) is type(like)


def _kind(value: Any) -> str:
    """Returns a description of a value for errors."""
    if isinstance(value, Tensor):
        return f"a tensor {tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, dict | list | tuple):
        return f"{len(value)} values" if not isinstance(value, dict) else "a dictionary"
    return "nothing" if value is None else f"{value!r:.40}"


def _joined(name: str, key: Any) -> str:
    return f"{name}/{key}" if name else str(key)
