"""The log of a run as its page reads it: lines that are damaged are counted and left out, whatever is in them."""

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ebmlife.report.safe_files import SafeFolder

_LARGEST = 2**29  # bytes of a log: a million updates have half of that
_LINE = 2**16  # bytes of a line: an update takes some hundred
_UPDATES = 2**53  # the largest number that a page's script can count to

Line = dict[str, Any]  # figures of an update: numbers, or None


@dataclass(frozen=True)
class Log:
    lines: list[Line]  # by update, each once
    damaged: int = 0


def read(inside: SafeFolder) -> Log:
    file = inside.file(inside.folder / "log.jsonl", largest=_LARGEST)
    if file is None:
        return Log([])
    state = file.stat()
    return _read(file, state.st_mtime_ns, state.st_size, state.st_ino)


@lru_cache(maxsize=8)
def _read(file: Path, modified: int, size: int, inode: int) -> Log:
    """A log of 100,000 updates takes seconds to read: a live page reads it again only when it has grown."""
    found: dict[int, Line] = {}
    damaged = 0
    with file.open("rb") as stream:
        while text := stream.readline(_LINE):
            whole = text.endswith(b"\n")
            line = _parsed(text) if whole else None
            if line is not None:
                found[line["update"]] = line
            elif whole or len(text) == _LINE:
                damaged += 1
            while not whole and len(text) == _LINE:  # the rest of a line without end
                text = stream.readline(_LINE)
                whole = text.endswith(b"\n")
    return Log([found[update] for update in sorted(found)], damaged)


def _parsed(text: bytes) -> Line | None:
    try:
        line = json.loads(text)
        figures = {str(name): value for name, value in line.items() if value is None or _is_number(value)}
    except (ValueError, AttributeError, RecursionError):
        return None
    update = figures.get("update")
    return figures if isinstance(update, int) and 0 <= update < _UPDATES else None


def _is_number(value: Any) -> bool:
    """NaN and infinities are numbers: a page says that they are there."""
    return isinstance(value, float) or (type(value) is int and abs(value) < 2**1000)  # more is no float
