"""Notes on what a report leaves out, and why."""

from collections.abc import Callable
from typing import TypeVar

from ebmlife.errors import BadInput, shown

_MOST, _REASON = 20, 300  # the largest number of notes, and of characters in each
T = TypeVar("T")


class Notes:
    """One line for each part that could not be read."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._more = 0

    def __bool__(self) -> bool:
        return bool(self._lines)

    @property
    def lines(self) -> list[str]:
        return [*self._lines, f"and {self._more:,} more"] if self._more else list(self._lines)

    def add(self, line: str) -> None:
        line = shown(" ".join(line.split()), _REASON)
        if line in self._lines:
            return
        if len(self._lines) < _MOST:
            self._lines.append(line)
        else:
            self._more += 1

    def part(self, what: str, read: Callable[[], T], otherwise: T) -> T:
        """Returns what `read` returns; if it fails, adds a note and returns `otherwise`.

        The files of a run may come from anyone and be damaged in any way, and readers raise exceptions of any type. One
        part that cannot be read must not prevent the report.
        """
        try:
            return read()
        except Exception as error:
            why = reason(error)
            self.add(why if why.startswith(what) else f"{what}: {why}")
            return otherwise


def reason(error: Exception) -> str:
    """Describes an exception in one line."""
    return str(error) if isinstance(error, BadInput) else f"cannot be read ({type(error).__name__}: {error})"
