"""What is printed for people: one line each, without anything that a terminal would obey."""

import os
import sys
from functools import cache

_LONGEST = 2000  # characters of a line


def shown(text: object) -> str:
    """The text of a name or a message as one line: control characters, escape codes and undecodable bytes appear as
    Python would write them in a string, and an endless line is cut."""
    visible = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in str(text))
    return visible if len(visible) <= _LONGEST else f"{visible[:_LONGEST]}..."


@cache
def note(text: str) -> None:
    """Prints a note that ends nothing, once in a process; of several ranks, the first one speaks."""
    if os.environ.get("RANK", "0") == "0":
        print(f"note: {shown(text)}", file=sys.stderr, flush=True)
