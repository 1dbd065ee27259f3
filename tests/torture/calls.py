"""Fuzzed command lines and recipes: sound ones with some words changed, and one of the allowed ends."""

import argparse
import json
import random
import signal
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from torture.cases import Case, chance
from torture.recovery import what
from torture.sameness import contents, different
from torture.verbs import VERBS
from torture.workshop import Workshop

NAME = "calls"
DEFAULT = 5000
_PATIENCE = 5  # seconds until a command that works is interrupted: what was asked for may take for ever
_ENDS = (0, 1, 2, 130)
_MORE = ("show digits-shortrun", "show digits-gan", "estimate digits-shortrun", "recipes", "demo --out new", "bench")
_COMMANDS = tuple(verb.command for verb in VERBS) + _MORE


def _each(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_HUGE = (str(2**31), str(2**32), str(2**63 - 1), str(2**63), str(-(2**63)), str(10**30), "9" * 5000)
_WHOLE = _each("0 1 2 3 7 64 1000 -1 -0 1_000 ٣") + _HUGE
_REAL = _each("0 1 0.5 1e-3 1e-30 1e38 1e308 -1 -1e308 nan inf -inf 1e400") + _HUGE
_ODD = ("", " ", "\t", "\n", "a\nb", "\x1b[31mred", "\u202eright to left", "é", "日本", "\udcff", "x" * 5000)
_PATHS = _ODD + _each(
    """run classifier toy images images/000000.png nothing nothing/below new . .. / ~ /dev/null /dev/full /dev/zero/x
    /proc/self/mem run/recipe.json run/checkpoints run/log.jsonl out.png out.txt out.html out.safetensors out.npy
    zoo:digits-shortrun zoo:none hf:some/one hf:../.. hf: timm:none os:getcwd no.module:f a:b:c"""
)
_WORDS = _ODD + _each(
    """true false none null [] {} {"a":1} ' " $HOME `id` -- - -h 0x10 1e3 linf:8/255 linf:1/0 l2:nan linf:-1 0,1 1,,2
    1e-3,1e-4@3 1@-1 1@1,2@1 1@x fresh persistent maturing uniform data generator coarse sngan perceptron flat python
    adam sgd cpu cuda cuda:99 meta mps zzz digits toy folder webdataset bf16"""
)
_VALUES = _WHOLE + _REAL + _PATHS + _WORDS

# Values that fit an option's type, so that a command gets beyond its parser; none for a flag.
Pool = Sequence[str]
Pools = dict[str, dict[str, Pool]]  # by command or recipe, then by option
_RECIPES = ("digits-shortrun", "digits-classifier", "digits-gan", "toy-mixture-midrun")  # that verbs train
_FIELDS_IN = ("train", "resume", "show", "import")


def cases(workshop: Workshop, count: int, seed: int) -> Iterator[Case]:
    """Every fifth changes the recipe of a run that has just begun; all others change the words of a command."""
    options, fields = _options(), _fields()
    for index in range(count):
        dice = chance(seed, NAME, index)
        if index % 5 == 4:
            yield Case("resume of a changed recipe", partial(_recipe_changed, workshop, dice))
        else:
            words = fuzzed(dice.choice(_COMMANDS).split(), dice, options, fields)
            about = " ".join(word if len(word) < 40 else f"{word[:40]}..." for word in words)
            yield Case(ascii(about), partial(_called, workshop, words))


def fuzzed(words: list[str], dice: random.Random, options: Pools, fields: Pools) -> list[str]:
    """With one to three changes: most give an option another value, some break the words themselves."""
    for _ in range(dice.choice((1, 1, 2, 3))):
        words += [] if words[1:] else ["run"]
        kind, at = dice.random(), dice.randrange(len(words))
        takes_fields = words[0] in _FIELDS_IN and dice.random() < 0.7
        known = fields.get(words[1], fields[_RECIPES[0]]) if takes_fields else options.get(words[0])
        if known and kind < 0.8:
            name = dice.choice(list(known))
            words += [name, dice.choice(known[name] if dice.random() < 0.9 else _VALUES)] if known[name] else [name]
        elif kind < 0.88:
            words[at or -1] = dice.choice(_VALUES)
        elif kind < 0.94:
            words = words[:at] + words[at + 1 :] or ["train"]
        else:
            letter = dice.randrange(len(words[at]) + 1)
            words[at] = words[at][:letter] + dice.choice("-=.@:/ x\té") + words[at][letter + 1 :]
    return words


def _options() -> Pools:
    """Of every command, as its parser knows them."""
    from ebmlife.cli import _parser

    commands = next(a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction)).choices
    return {
        name: {a.option_strings[0]: _pool(a) for a in parser._actions if a.option_strings and a.dest != "help"}
        for name, parser in commands.items()
    }


def _pool(action: argparse.Action) -> Pool:
    if action.nargs == 0:
        return ()
    if action.choices:
        return tuple(map(str, action.choices))
    return {int: _WHOLE, float: _REAL, Path: _PATHS}.get(cast(Any, action.type), _WORDS + _WHOLE + _PATHS)


def _fields() -> Pools:
    """Of recipes, with all fields as options."""
    from ebmlife import recipes

    def below(value: Any, name: str) -> Iterator[tuple[str, Pool]]:
        if isinstance(value, dict):
            for key, item in value.items():
                yield from below(item, f"{name}.{key}" if name else key)
        else:
            yield f"--{name}", _WHOLE if type(value) is int else _REAL if type(value) is float else _WORDS + _REAL

    return {name: dict(below(recipes.get(name).model_dump(mode="json"), "")) for name in _RECIPES}


def _called(workshop: Workshop, words: Sequence[str]) -> str | None:
    """Refused, nothing is left; interrupted, it ends at once."""
    with workshop.place() as place:
        before = contents(place.here)
        child = place.start(*words)
        if child.wait(_PATIENCE) is None:
            child.send(signal.SIGINT)
            if child.wait(20) is None:
                child.send(signal.SIGINT)  # the first asks for a stop at the next good moment
        ended = child.ended(20)
        if wrong := ended.wrong(allowed=_ENDS):
            return wrong
        changed = different(contents(place.here), before)
        if ended.code != 2:
            changed = [path for path in changed if ".unfinished" in path]
        return f"exit code {ended.code}, but {what(changed)}" if changed else None


def _recipe_changed(workshop: Workshop, dice: random.Random) -> str | None:
    """recipe.json of a run without a checkpoint or a log: nothing else says how it should be."""
    with workshop.place() as place:
        file = place.here / "fresh" / "recipe.json"
        file.parent.mkdir()
        recipe = json.loads((place.here / "run" / "recipe.json").read_text())
        about = _changed(recipe, dice)
        file.write_text(json.dumps(recipe))
        child = place.start("resume", "fresh")
        if child.wait(_PATIENCE) is None:
            child.send(signal.SIGINT)
        wrong = child.ended().wrong(allowed=_ENDS)
        return f"{about}: {wrong}" if wrong else None


def _changed(tree: dict[str, Any], dice: random.Random) -> str:
    """One field becomes something else, or goes, or another comes."""
    path = ""
    while True:
        key = dice.choice(list(tree))
        path = f"{path}.{key}".lstrip(".")
        below = tree[key][0] if isinstance(tree[key], list) and tree[key] else tree[key]
        if isinstance(below, dict) and below and dice.random() < 0.8:
            tree = below
            continue
        if dice.random() < 0.1:
            del tree[key]
            return f"without {path}"
        tree[key] = _odd(dice)
        return f"{path} = {json.dumps(tree[key])[:60]}"


def _odd(dice: random.Random) -> Any:
    numbers = (0, 1, -1, 2, 1.5, 2**31, 2**63, 10**30, 1e308, float("nan"), float("inf"), True)
    nested: Any = []
    for _ in range(dice.choice((1, 300))):
        nested = [nested]
    return dice.choice(
        (dice.choice(numbers), dice.choice(numbers), dice.choice(_VALUES), None, [], {}, nested, {"kind": "x"})
    )
