"""What a page leaves out, and why."""

from collections.abc import Callable
from typing import TypeVar

from ebmlife.errors import BadInput, shown

_MOST, _REASON = 20, 300  # notes that are kept; letters of each
T = TypeVar("T")


class Notes:
    """One line for each thing that could not be read."""

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
        """What `read` gives; where it fails, a note and `otherwise`.

        Files of a run may come from anybody and be damaged in any way, and their readers raise whatever they do: one
        part that cannot be read must not take the page with it.
        """
        try:
            return read()
        except Exception as error:
            said = reason(error)
            self.add(said if said.startswith(what) else f"{what}: {said}")
            return otherwise


def reason(error: Exception) -> str:
    """An exception in a line."""
    return str(error) if isinstance(error, BadInput) else f"cannot be read ({type(error).__name__}: {error})"
