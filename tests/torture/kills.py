"""Every verb that writes, killed: before each of its file operations in turn, and at random moments, several times."""

import random
import signal
from collections.abc import Iterator
from functools import partial
from itertools import count as numbers

from torture.cases import Case, chance
from torture.commands import Place
from torture.ended import Ended
from torture.operations import kill_before
from torture.recovery import recovered
from torture.verbs import VERBS, Verb
from torture.workshop import Workshop

NAME = "kills"
DEFAULT = 600  # a tenth of the random ones come after the end
_SIGNALS = {signal.SIGKILL: (0, 2, -9), signal.SIGTERM: (0, 2, -15), signal.SIGINT: (0, 2, 130)}  # and their exits


def cases(workshop: Workshop, count: int, seed: int) -> Iterator[Case]:
    """Both kinds in turn, until all operations have had theirs; then random moments only."""
    points = [(verb, number) for verb in VERBS for number in range(1, workshop.reference(verb).operations + 1)]
    random.Random(seed).shuffle(points)
    for index in range(count):
        if index % 2 == 0 and index // 2 < len(points):
            verb, number = points[index // 2]
            trouble = partial(_killed_before, verb, number)
            run = partial(recovered, workshop, verb, trouble, allowed=(0, -9))
            yield Case(f"{verb.name}, SIGKILL before file operation {number}", run)
        else:
            yield _at_random(workshop, chance(seed, NAME, index))


def _at_random(workshop: Workshop, dice: random.Random) -> Case:
    verb, number = dice.choice(VERBS), dice.choice(list(_SIGNALS))
    moments = [dice.random() * 1.1 * workshop.reference(verb).seconds for _ in range(dice.choice((1, 1, 2, 3)))]
    trouble = partial(_killed_at, verb, number, moments)
    said = ", ".join(f"{moment:.2f}" for moment in moments)
    run = partial(recovered, workshop, verb, trouble, allowed=_SIGNALS[number])
    return Case(f"{verb.name}, {number.name} after {said} s", run)


def _killed_before(verb: Verb, number: int, place: Place) -> Ended:
    return place.run(*verb.words, before=partial(kill_before, number))


def _killed_at(verb: Verb, number: signal.Signals, moments: list[float], place: Place) -> Ended:
    """Called again and killed again; the first that goes wrong is the one that is judged."""
    for i, moment in zip(numbers(), moments):
        child = place.start(*(verb.again() if i else verb.words))
        child.wait(moment)
        child.send(number)
        ended = child.ended()
        if ended.wrong(allowed=_SIGNALS[number]):
            break
    return ended
