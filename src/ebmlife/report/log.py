"""Reads the log of a run for its report. Damaged lines are counted and left out."""

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ebmlife.report.safe_files import SafeFolder

_LARGEST = 2**29  # bytes of a log: a million updates take half of that
_LINE = 2**16  # bytes of a line: an update takes a few hundred
_UPDATES = 2**53  # the largest whole number of JavaScript

Line = dict[str, Any]  # metrics of an update: numbers or None


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
    """Reads a log again only if it has changed: one of 100,000 updates takes seconds."""
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
            while not whole and len(text) == _LINE:  # skip the rest of a long line
                text = stream.readline(_LINE)
                whole = text.endswith(b"\n")
    return Log([found[update] for update in sorted(found)], damaged)


def _parsed(text: bytes) -> Line | None:
    try:
        line = json.loads(text)
        metrics = {str(name): value for name, value in line.items() if value is None or _is_number(value)}
    except (ValueError, AttributeError, RecursionError):
        return None
    update = metrics.get("update")
    return metrics if isinstance(update, int) and 0 <= update < _UPDATES else None


def _is_number(value: Any) -> bool:
    """Whether a value can be shown. NaN and infinities can: the report counts them."""
    return isinstance(value, float) or (type(value) is int and abs(value) < 2**1000)  # larger ones do not fit a float
