"""Recipes by name. Each is a function of fields; its docstring has a summary, the command and what was measured."""

from collections.abc import Callable
from functools import partial
from typing import Any

from ebmlife.errors import BadInput, nearest
from ebmlife.recipes.schema import Part, Recipe, part, validate
from ebmlife.sampling.schedule import parse

Fields = Callable[[], dict[str, Any]]
_RECIPES: dict[str, tuple[str, Fields]] = {}  # summary, fields


def named(fields: Fields) -> Fields:
    """Registers a function of fields as the recipe of that name (a_b -> 'a-b'); the first line is its summary."""
    _RECIPES[_name(fields)] = ((fields.__doc__ or "").strip().splitlines()[0], fields)
    return fields


def compared(fields: Fields) -> Fields:
    """Registers a hybrid recipe's comparisons beside it: the same networks, data and numbers, other initializations."""
    return _varied(fields, _COMPARISONS)


def lengthened(fields: Fields) -> Fields:
    """Registers a toy's midrun and longrun beside its shortrun, the same network, data, step size and updates; and the
    longrun with one of its parts taken away at a time, or with the midrun energy as a prior: like the paper's priors,
    it has learned from persistent chains that are often rejuvenated."""
    name, (_, changed) = _name(fields), _LENGTHS["longrun"]
    longrun = partial(_changed, fields, changed)
    prior = {"run": f"runs/{name}-midrun"}
    with_prior = {"with-prior": ("with the midrun energy as a fixed prior", lambda _: {"prior": prior})}
    _vary(f"{name}-longrun", longrun, _ablations_of(longrun()) | with_prior)
    return _varied(fields, _LENGTHS)


def ablated(fields: Fields) -> Fields:
    """Registers the ablations of a longrun recipe: the same recipe with one part removed at a time."""
    return _varied(fields, _ablations_of(fields()))


def unannealed(fields: Fields) -> Fields:
    """Registers a variant of a recipe with its first learning rate to the end."""
    return _varied(fields, {"no-anneal": _ABLATIONS["no-anneal"]})


def _varied(fields: Fields, variants: dict[str, "_Variant"]) -> Fields:
    _vary(_name(fields), fields, variants)
    return fields


def _vary(name: str, fields: Fields, variants: dict[str, "_Variant"]) -> None:
    for suffix, (summary, changed) in variants.items():
        _RECIPES[f"{name}-{suffix}"] = (f"{name} {summary}.", partial(_changed, fields, changed))


def _ablations_of(longrun: dict[str, Any]) -> dict[str, "_Variant"]:
    """The ablations that apply to a longrun recipe."""
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
        "with cooperative learning: chains from the learning generator at every update",
        lambda _: {"chains": part("fresh")},
    ),
    "persistent": (
        "with persistent chains, rejuvenated from noise with probability 0.05",
        lambda base: {
            "start": part("uniform"),
            "chains": part("persistent", size=base["chains"].options["size"], rejuvenate=0.05),
            "generator": None,
        },
    ),
    "noise": (
        "with chains from noise at every update",
        lambda _: {"start": part("uniform"), "chains": part("fresh"), "generator": None},
    ),
    "data": (
        "with chains from data at every update (contrastive divergence)",
        lambda _: {"start": part("data"), "chains": part("fresh"), "generator": None},
    ),
}
_LENGTHS: dict[str, _Variant] = {
    "midrun": (
        "with persistent chains, rejuvenated from noise after 200 steps on average",
        lambda base: {
            "chains": part("persistent", size=base["batch"], rejuvenate=base["langevin"]["steps"] / 200),
            "sampling_steps": 200,
        },
    ),
    "longrun": (
        "with chains that are burned in for 1,000 steps before the energy learns from them",
        lambda base: {
            "chains": part(
                "maturing",
                size=2 * base["batch"],  # enough chains for every mode to have its share
                burn_in_size=base["batch"],
                mature=1000 // base["langevin"]["steps"],
            ),
            "sampling_steps": 1000,
        },
    ),
}
_ABLATIONS: dict[str, _Variant] = {
    "no-anneal": (
        "with its first learning rate throughout, not annealed",
        lambda base: {"optimizer": base["optimizer"] | {"learning_rate": _first(base["optimizer"]["learning_rate"])}},
    ),
    "no-prior": ("without the prior energy", lambda _: {"prior": None}),
    "one-bank": (
        "with one bank, whose states are rejuvenated as often as they would be burned in",
        lambda base: {"chains": _one_bank(base["chains"])},
    ),
}


def _first(rate: str) -> float:
    return parse(rate).phases[0].value


def _one_bank(chains: Part) -> Part:
    """A share of 1 / `mature` of a burn-in batch is burned in per update; as many states are rejuvenated here."""
    return part("persistent", size=chains.options["size"], rejuvenate=1 / chains.options["mature"])


def names() -> list[str]:
    """The names of all recipes."""
    return sorted(_RECIPES)


def get(name: str) -> Recipe:
    """The recipe of that name.

    Raises:
        BadInput: There is none.
    """
    if name not in _RECIPES:
        hint = nearest(name, _RECIPES)  # all names at once would be too long a line
        hint = hint if "did you mean" in hint else "; list the names with: ebmlife recipes"
        raise BadInput(f"unknown recipe {name!r}{hint}")
    summary, fields = _RECIPES[name]
    return validate({"name": name, "summary": summary, **fields()})
