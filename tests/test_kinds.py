from typing import Any

import pytest

from ebmlife.errors import BadInput
from ebmlife.recipes.options import Registry
from ebmlife.recipes.schema import part
from ebmlife.runs import build
from ebmlife.sampling.schedule import Phase, Piecewise, constant


class Kettle:
    def __init__(
        self,
        water: str,
        *,
        size: int,
        power: float = 1.5,
        loud: bool = False,
        label: str | None = None,
        heat: Piecewise = constant(0.5),  # noqa: B008 (immutable)
    ) -> None:
        self.given = {"water": water, "size": size, "power": power, "loud": loud, "label": label, "heat": heat}


def samovar(*, taps: int = 1) -> dict[str, Any]:
    return {"taps": taps}


POTS = Registry("pot", {"kettle": Kettle, "samovar": samovar}, frozenset({"water", "fire"}))


def test_defaults_are_filled_in() -> None:
    assert POTS.resolve(part("kettle", size=3)).options == {
        "size": 3,
        "power": 1.5,
        "loud": False,
        "label": None,
        "heat": 0.5,
    }
    assert POTS.resolve(part("samovar")) == part("samovar", taps=1)


def test_resolving_twice_changes_nothing() -> None:
    once = POTS.resolve(part("kettle", size="3", heat="1, 2 @ 5"))
    assert POTS.resolve(once) == once


def test_options_and_provided_things_reach_the_class() -> None:
    kettle = POTS.make(part("kettle", size="3", loud="true", power="2"), water="cold", fire="not wanted by a kettle")
    assert kettle.given == {
        "water": "cold",
        "size": 3,
        "power": 2.0,
        "loud": True,
        "label": None,
        "heat": constant(0.5),
    }
    assert POTS.make(part("samovar", taps=2), water="cold") == {"taps": 2}


def test_optional_options_take_none_as_text() -> None:
    assert POTS.resolve(part("kettle", size=1, label="none")).options["label"] is None
    assert POTS.resolve(part("kettle", size=1, label="mine")).options["label"] == "mine"


def test_whether_a_kind_wants_something_provided() -> None:
    assert POTS.accepts(part("kettle"), "water")
    assert not POTS.accepts(part("kettle"), "fire")
    assert not POTS.accepts(part("samovar"), "water")


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("ketle", {}, r"unknown pot\.kind 'ketle'; did you mean 'kettle'\?"),
        ("zzz", {}, r"unknown pot\.kind 'zzz'; known: kettle, samovar"),
        ("kettle", {"size": 1, "powr": 2}, r"unknown field 'pot\.powr'; did you mean 'power'\?"),
        ("kettle", {}, r"field 'pot\.size' is missing"),
        ("kettle", {"size": "large"}, r"field 'pot\.size': .*integer.*'large'"),
        ("kettle", {"size": 1, "loud": "perhaps"}, r"field 'pot\.loud': .*boolean"),
        ("kettle", {"size": 1, "heat": "hot"}, r"field 'pot\.heat': .*'hot'"),
        ("samovar", {"taps": 1.5}, r"field 'pot\.taps': .*integer"),
        ("kettle", {"size": 1, "water": "mine"}, r"unknown field 'pot\.water'"),
        ("kettle", {"size": 1, "power": "nan"}, r"field 'pot\.power': .*finite"),
    ],
)
def test_mistakes_are_named(kind: str, options: dict[str, Any], message: str) -> None:
    for use in (POTS.resolve, POTS.make):
        with pytest.raises(BadInput, match=message):
            use(part(kind, **options))


@pytest.mark.parametrize(
    ("given", "expected", "plain"),
    [
        (2, constant(2), 2),
        (0.25, constant(0.25), 0.25),
        ("0.25", constant(0.25), 0.25),
        (
            *("1, 0.5 @ 9", Piecewise((Phase(0, 1), Phase(9, 0.5)))),
            [{"from_update": 0, "value": 1}, {"from_update": 9, "value": 0.5}],
        ),
    ],
)
def test_schedules_are_numbers_or_text(given: Any, expected: Piecewise, plain: Any) -> None:
    chosen = POTS.resolve(part("kettle", size=1, heat=given))
    assert chosen.options["heat"] == plain
    assert POTS.make(chosen, water="").given["heat"] == expected


def test_every_kind_of_chains_can_be_resolved_with_its_defaults() -> None:
    assert build.CHAINS.resolve(part("persistent")).options["rejuvenate"] == 0  # a plain number where a schedule may be
    for kind in build.CHAINS.constructors:
        resolved = build.CHAINS.resolve(part(kind))
        assert build.CHAINS.resolve(resolved) == resolved
