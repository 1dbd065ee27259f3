"""Whether two folders hold the same: all files, bit for bit, but for what differs between two equal commands."""

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

Contents = dict[str, str]  # path in the folder -> digest of what counts

_TIMES = {"updates_per_second", "data_seconds", "seconds", "seconds_per_step", "date", "time"}
_LARGEST = 2**28  # bytes of a file that is compared; some that are tried are sparse and endless
_UNCOUNTED = {".lock", "tensorboard", "__pycache__"}


def contents(folder: Path) -> Contents:
    """Of everything in it; links, pipes and files that cannot be read are only named."""
    found: Contents = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _UNCOUNTED]
        for name in files:
            if name not in _UNCOUNTED:
                path = Path(place, name)
                found[str(path.relative_to(folder))] = _digest(path)
    return found


def different(found: Contents, wanted: Contents) -> list[str]:
    """The paths that are missing, changed or too many.

    A run that was stopped may have other checkpoints on its way, and set aside more; the last one must be there.
    """
    paths = {path for path in found.keys() | wanted.keys() if found.get(path) != wanted.get(path)}
    free = {path for path in paths if path not in found and _on_the_way(path, wanted)}
    free |= {path for path in paths if path not in wanted and (_on_the_way(path, found) or ".abandoned" in path)}
    return sorted(paths - free)


def _on_the_way(path: str, of: Contents) -> bool:
    """Whether it belongs to a checkpoint, and not to the last one of its run."""
    run, found, rest = path.partition("/checkpoints/")
    number = rest.partition("/")[0]
    if not found or not number.isdigit():
        return False
    return any(other.startswith(f"{run}/checkpoints/") and other.split("/checkpoints/")[1][:9] > number for other in of)


def log_lines(file: Path) -> list[str]:
    """The readable lines of a log, without times."""
    return [line for line in map(_counted_line, file.read_bytes().splitlines()) if line is not None]


def _digest(path: Path) -> str:
    mode = path.lstat().st_mode
    if not stat.S_ISREG(mode):
        return f"no file, mode {mode:o}"
    if not os.access(path, os.R_OK) or path.stat().st_size > _LARGEST:
        return f"not read, {path.stat().st_size} bytes"
    content = path.read_bytes()
    if path.suffix == ".jsonl":
        content = "\n".join(log_lines(path)).encode()
    elif path.suffix == ".json":
        content = (_counted_line(content) or "").encode() or content
    return hashlib.sha256(content).hexdigest()


def _counted_line(line: bytes) -> str | None:
    try:
        return json.dumps(_counted(json.loads(line)))
    except (ValueError, RecursionError):
        return None


def _counted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _counted(item) for name, item in value.items() if name not in _TIMES}
    return [_counted(item) for item in value] if isinstance(value, list) else value
