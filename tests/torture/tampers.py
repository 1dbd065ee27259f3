"""Checkpoints with wrong contents and right checksums: refused in one line, or used to the same bits."""

import random
from collections.abc import Iterator
from functools import partial

from torture import tampering
from torture.cases import Case, chance
from torture.damages import RESUME, SAMPLE, unlike
from torture.sameness import contents, different
from torture.verbs import Verb
from torture.workshop import Workshop

NAME = "tampers"
DEFAULT = 400
_NEWEST = "run/checkpoints/000000006"


def cases(workshop: Workshop, count: int, seed: int) -> Iterator[Case]:
    for index in range(count):
        verb = (RESUME, SAMPLE)[index % 2]
        workshop.reference(verb)
        yield Case(verb.name, partial(_tampered, workshop, verb, chance(seed, NAME, index)))


def _tampered(workshop: Workshop, verb: Verb, dice: random.Random) -> str | None:
    with workshop.place() as place:
        about = tampering.tamper(place.here / _NEWEST, dice)
        ended = place.run(*verb.words)
        if wrong := ended.wrong(allowed=(0, 2)):
            return f"{about}: {wrong}"
        differences = different(contents(place.here), workshop.reference(verb).contents)
        wrong = unlike([path for path in differences if _NEWEST not in path], ended, verb) if ended.code == 0 else None
        return f"{about}: {wrong}" if wrong else None
