"""Recipes by name. Each is a function whose docstring says what it is for, its command, and what was measured."""

from collections.abc import Callable
from functools import partial
from typing import Any

from ebmlife.errors import BadInput, nearest
from ebmlife.recipes.schema import Part, Recipe, part, validate
from ebmlife.sampling.schedule import parse

Fields = Callable[[], dict[str, Any]]
_RECIPES: dict[str, tuple[str, Fields]] = {}  # summary, fields


def named(fields: Fields) -> Fields:
    """Registers a function of fields as the recipe of its name (a_b -> 'a-b')."""
    _RECIPES[_name(fields)] = ((fields.__doc__ or "").strip().splitlines()[0], fields)
    return fields


def compared(fields: Fields) -> Fields:
    """Registers a hybrid recipe's comparisons beside it: the same networks, data and numbers, other initialisations."""
    return _varied(fields, _COMPARISONS)


def lengthened(fields: Fields) -> Fields:
    """Registers a toy's midrun and longrun beside its shortrun, the same network, data, step size and updates; and the
    longrun with one of its parts taken away at a time, or with the midrun energy as a prior: like the paper's priors,
    it has learned from persistent chains that are often reborn."""
    name, (_, changed) = _name(fields), _LENGTHS["longrun"]
    longrun = partial(_changed, fields, changed)
    prior = {"run": f"runs/{name}-midrun"}
    with_prior = {"with-prior": ("beside the midrun energy as a fixed prior", lambda _: {"prior": prior})}
    _vary(f"{name}-longrun", longrun, _ablations_of(longrun()) | with_prior)
    return _varied(fields, _LENGTHS)


def ablated(fields: Fields) -> Fields:
    """Registers a longrun recipe beside itself with one of its parts taken away at a time."""
    return _varied(fields, _ablations_of(fields()))


def unannealed(fields: Fields) -> Fields:
    """Registers a recipe beside itself with its first learning rate to the end."""
    return _varied(fields, {"no-anneal": _ABLATIONS["no-anneal"]})


def _varied(fields: Fields, variants: dict[str, "_Variant"]) -> Fields:
    _vary(_name(fields), fields, variants)
    return fields


def _vary(name: str, fields: Fields, variants: dict[str, "_Variant"]) -> None:
    for suffix, (summary, changed) in variants.items():
        _RECIPES[f"{name}-{suffix}"] = (f"{name} {summary}.", partial(_changed, fields, changed))


def _ablations_of(longrun: dict[str, Any]) -> dict[str, "_Variant"]:
    """The ablations that take away something which is there."""
    with_prior = longrun.get("prior") is not None
    return {name: how for name, how in _ABLATIONS.items() if name != "no-prior" or with_prior}


def _changed(fields: Fields, changed: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    base = fields()
    return base | changed(base)


def _name(fields: Fields) -> str:
    return fields.__name__.replace("_", "-")


_Variant = tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]  # summary; fields -> those that change
_COMPARISONS: dict[str, _Variant] = {
    "coop": (
        "with cooperative learning: chains from the learning generator each time",
        lambda _: {"chains": part("fresh")},
    ),
    "persistent": (
        "with persistent chains, reborn as noise with probability 0.05",
        lambda base: {
            "start": part("uniform"),
            "chains": part("persistent", size=base["chains"].options["size"], rejuvenate=0.05),
            "generator": None,
        },
    ),
    "noise": (
        "with chains from noise each time",
        lambda _: {"start": part("uniform"), "chains": part("fresh"), "generator": None},
    ),
    "data": (
        "with chains from data each time (contrastive divergence)",
        lambda _: {"start": part("data"), "chains": part("fresh"), "generator": None},
    ),
}
_LENGTHS: dict[str, _Variant] = {
    "midrun": (
        "with persistent chains, reborn as noise after 200 steps on average",
        lambda base: {
            "chains": part("persistent", size=base["batch"], rejuvenate=base["langevin"]["steps"] / 200),
            "sampling_steps": 200,
        },
    ),
    "longrun": (
        "with chains that mature for 1,000 steps before they are learned from",
        lambda base: {
            "chains": part(
                "maturing",
                size=2 * base["batch"],  # modes have their share of so many chains, but for chance
                burn_in_size=base["batch"],
                mature=1000 // base["langevin"]["steps"],
            ),
            "sampling_steps": 1000,
        },
    ),
}
_ABLATIONS: dict[str, _Variant] = {
    "no-anneal": (
        "with its first learning rate throughout",
        lambda base: {"optimizer": base["optimizer"] | {"learning_rate": _first(base["optimizer"]["learning_rate"])}},
    ),
    "no-prior": ("without the prior energy", lambda _: {"prior": None}),
    "one-bank": (
        "with one bank, into which states are born as often as they would mature",
        lambda base: {"chains": _one_bank(base["chains"])},
    ),
}


def _first(rate: str) -> float:
    return parse(rate).phases[0].value


def _one_bank(maturing: Part) -> Part:
    """A burn-in batch matures at a rate of 1 / `mature` of its states an update; so many are reborn here."""
    return part("persistent", size=maturing.options["size"], rejuvenate=1 / maturing.options["mature"])


def names() -> list[str]:
    return sorted(_RECIPES)


def get(name: str) -> Recipe:
    if name not in _RECIPES:
        raise BadInput(f"unknown recipe {name!r}{nearest(name, _RECIPES)}")
    summary, fields = _RECIPES[name]
    return validate({"name": name, "summary": summary, **fields()})
