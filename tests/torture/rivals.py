"""The same command three times at once: in one folder, with nothing in the caches."""

from collections.abc import Iterator
from functools import partial

from torture.cases import Case
from torture.ended import Ended
from torture.recovery import what
from torture.sameness import contents, different
from torture.verbs import VERBS, Verb
from torture.workshop import Workshop

NAME = "rivals"
DEFAULT = 60
_WRITING = [verb for verb in VERBS if not verb.endless]
_RIVALS = 3
_LIMIT = 300  # seconds: caches are filled meanwhile


def cases(workshop: Workshop, count: int, seed: int) -> Iterator[Case]:
    for index in range(count):
        verb = _WRITING[index % len(_WRITING)]
        workshop.reference(verb)
        yield Case(f"{verb.name}, {_RIVALS} at once", partial(_all_at_once, workshop, verb))


def _all_at_once(workshop: Workshop, verb: Verb) -> str | None:
    """One of them must succeed, the others may be refused; in the end all is as one would have left it."""
    with workshop.place(cache=False) as place:
        children = [place.start(*verb.words) for _ in range(_RIVALS)]
        ended: list[Ended] = [child.ended(_LIMIT) for child in children]
        for one in ended:
            if wrong := one.wrong(allowed=(0, 2)):
                return wrong
        if all(one.code for one in ended):
            return f"none succeeded: {ended[0].err.strip()}"
        differences = different(contents(place.here), workshop.reference(verb).contents)
        left = [str(file) for file in (place.root / "home").rglob("*.unfinished")]
        return what([*differences, *left]) if differences or left else None
