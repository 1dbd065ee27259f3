"""Recipes by name. Each is a function whose docstring says what it is for, its command, and what was measured."""

from collections.abc import Callable
from typing import Any

from ebmlife.errors import BadInput, nearest
from ebmlife.recipe import Recipe, validate

_RECIPES: dict[str, Callable[[], dict[str, Any]]] = {}


def named(fields: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """Registers a function of fields as the recipe of its name (a_b -> 'a-b')."""
    _RECIPES[fields.__name__.replace("_", "-")] = fields
    return fields


def names() -> list[str]:
    return sorted(_RECIPES)


def get(name: str) -> Recipe:
    if name not in _RECIPES:
        raise BadInput(f"unknown recipe {name!r}{nearest(name, _RECIPES)}")
    fields = _RECIPES[name]
    summary = (fields.__doc__ or "").strip().splitlines()[0]
    return validate({"name": name, "summary": summary, **fields()})
