"""Recipes by name. Each is a function whose docstring says what it is for, its command, and what was measured."""

from collections.abc import Callable
from functools import partial
from typing import Any

from ebmlife.errors import BadInput, nearest
from ebmlife.recipe import Part, Recipe, part, validate
from ebmlife.schedule import parse

Fields = Callable[[], dict[str, Any]]
_RECIPES: dict[str, tuple[str, Fields]] = {}  # summary, fields


def named(fields: Fields) -> Fields:
    """Registers a function of fields as the recipe of its name (a_b -> 'a-b')."""
    _RECIPES[_name(fields)] = ((fields.__doc__ or "").strip().splitlines()[0], fields)
    return fields


def compared(fields: Fields) -> Fields:
    """Registers a hybrid recipe's comparisons beside it: the same networks, data and numbers, other initialisations."""
    for suffix, (summary, changed) in _COMPARISONS.items():
        _RECIPES[f"{_name(fields)}-{suffix}"] = (f"{_name(fields)} with {summary}.", partial(_changed, fields, changed))
    return fields


def unannealed(fields: Fields) -> Fields:
    """Registers a recipe's ablation beside it: the learning rate that it begins with, to the end."""

    def constant() -> dict[str, Any]:
        base = fields()
        first = parse(str(base["optimizer"]["learning_rate"])).values[0]
        return base | {"optimizer": base["optimizer"] | {"learning_rate": first}}

    _RECIPES[f"{_name(fields)}-no-anneal"] = (f"{_name(fields)} without annealing.", constant)
    return fields


def _changed(fields: Fields, changed: Callable[[Part], dict[str, Any]]) -> dict[str, Any]:
    base = fields()
    return base | changed(base["chains"])


def _name(fields: Fields) -> str:
    return fields.__name__.replace("_", "-")


_COMPARISONS: dict[str, tuple[str, Callable[[Part], dict[str, Any]]]] = {
    "coop": ("cooperative learning: chains from the learning generator each time", lambda _: {"chains": part("fresh")}),
    "persistent": (
        "persistent chains, reborn as noise with probability 0.05",
        lambda bank: {
            "start": part("uniform"),
            "chains": part("persistent", size=bank.options["size"], rejuvenate=0.05),
            "generator": None,
        },
    ),
    "noise": (
        "chains from noise each time",
        lambda _: {"start": part("uniform"), "chains": part("fresh"), "generator": None},
    ),
    "data": (
        "chains from data each time (contrastive divergence)",
        lambda _: {"start": part("data"), "chains": part("fresh"), "generator": None},
    ),
}


def names() -> list[str]:
    return sorted(_RECIPES)


def get(name: str) -> Recipe:
    if name not in _RECIPES:
        raise BadInput(f"unknown recipe {name!r}{nearest(name, _RECIPES)}")
    summary, fields = _RECIPES[name]
    return validate({"name": name, "summary": summary, **fields()})
