"""The errors that ebmlife raises on purpose, and notes that it prints while it continues."""

import os
import sys
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from typing import TypeVar

T = TypeVar("T")
_LONGEST = 2000  # characters of a line


class BadInput(Exception):
    """A mistake in the user's input. The message is one line that names the input, what was expected and what to do.

    The command line prints the line and exits with code 2.
    """


class InUse(BadInput):
    """Another process works in the same folder."""


class Diverged(Exception):
    """An energy is not finite, or far from what is normal for the run. The message gives the update and the cause.

    Args:
        message: One line.
        since: The first update at which energies were far from normal, where that was before the last one.
    """

    def __init__(self, message: str, *, since: int | None = None) -> None:
        super().__init__(message)
        self.since = since


class Lost(Exception):
    """Another process that shares the work has ended."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Returns a hint for a misspelled word: '; did you mean X?', or the known words if none is close."""
    known = sorted(known)
    if not known:
        return "; none are known here"
    close = get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"


def by_name(table: Mapping[str, T], name: str, what: str) -> T:
    """Returns an entry of a table. Raises BadInput, with `what` and the nearest name, if there is none."""
    if name not in table:
        raise BadInput(f"unknown {what} {name!r}{nearest(str(name), table)}")
    return table[name]


def at_least(minimum: int, section: str, **counts: int) -> None:
    """Raises BadInput for the first of a section's counts that is below the minimum."""
    for name, count in counts.items():
        if count < minimum:
            raise BadInput(f"{section}.{name} must be at least {minimum}, got {count}")


def shown(text: object, longest: int = _LONGEST) -> str:
    """Returns a name or a message as one printable line.

    Control characters, escape codes and undecodable bytes appear as Python would write them in a string. A line of
    more than `longest` characters is cut.
    """
    visible = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in str(text))
    return visible if len(visible) <= longest else f"{visible[:longest]}..."


@cache
def note(text: str) -> None:
    """Prints a note to stderr, once in a process and on the first rank only."""
    if os.environ.get("RANK", "0") == "0":
        print(f"note: {shown(text)}", file=sys.stderr, flush=True)
