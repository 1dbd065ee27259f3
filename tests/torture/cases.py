"""What a test is: a module whose `cases` yields things to try, each of which holds or says in a line what failed.

    NAME = "kills"  # of the test and of its option
    DEFAULT = 100  # cases, unless the option says how many
    def cases(workshop: Workshop, count: int, seed: int) -> Iterator[Case]: ...

The case of an index is the same for every count, so that one alone can be repeated.
"""

import multiprocessing
import random
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from torture.workshop import Workshop


class Skipped(Exception):
    """This case cannot be tried here; says why."""


@dataclass(frozen=True)
class Case:
    about: str  # what is tried, in a few words
    run: Callable[[], str | None]  # what went wrong, in a line; None: it held


class Test(Protocol):
    NAME: str
    DEFAULT: int

    def cases(self, workshop: Workshop, count: int, seed: int) -> Iterator[Case]: ...


@dataclass(frozen=True)
class Verdict:
    index: int  # of the case in its test
    about: str
    wrong: str | None
    skipped: str | None
    seconds: float


def chance(seed: int, name: str, index: int) -> random.Random:
    """The random numbers of one case."""
    return random.Random(f"{seed} {name} {index}")


def judge(cases: Sequence[Case], *, jobs: int, first: int = 0) -> Iterator[Verdict]:
    """The verdicts from the first on, as they come, of worker processes."""
    global _cases
    _cases = cases  # workers inherit them: cases are functions, which cannot be sent
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap_unordered(_final_evaluation, range(first, len(cases)))


_cases: Sequence[Case] = ()


def _final_evaluation(index: int) -> Verdict:
    case, began = _cases[index], time.monotonic()
    wrong = skipped = None
    try:
        wrong = case.run()
    except Skipped as reason:
        skipped = str(reason)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        wrong = f"the test itself failed: {type(error).__name__}: {error} ({where.name}:{where.lineno})"
    line = wrong and " ".join(wrong.split())
    return Verdict(index, case.about, line, skipped, time.monotonic() - began)
