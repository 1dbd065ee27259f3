"""Measured metrics of a run, saved in its folder by the command that measured them."""

import json
from pathlib import Path
from typing import Any

from ebmlife.errors import BadInput
from ebmlife.storage.atomic import atomic_write, read_json

Results = dict[str, dict[str, float]]  # by command
_EVALUATED_ON = "evaluated_on"  # key beside the metrics of a command: the source of the images


def record(run: Path, command: str, metrics: dict[str, float], *, evaluated_on: dict[str, Any] | None = None) -> None:
    """Adds metrics to results.json; earlier ones of the same command are replaced."""
    added = {**metrics, **({} if evaluated_on is None else {_EVALUATED_ON: evaluated_on})}
    found = _read(run) | {command: added}
    with atomic_write(run / "results.json") as unfinished:
        unfinished.write_text(json.dumps(found, indent=2))


def read(run: Path) -> Results:
    """Returns the metrics in results.json, by command."""
    return {
        command: {name: value for name, value in found.items() if name != _EVALUATED_ON}
        for command, found in _read(run).items()
    }


def evaluated_on(run: Path) -> dict[str, dict[str, Any]]:
    """Returns the source of the images of each command; older results lack it."""
    return {command: found[_EVALUATED_ON] for command, found in _read(run).items() if _EVALUATED_ON in found}


def _read(run: Path) -> dict[str, dict[str, Any]]:
    file = run / "results.json"
    if not file.is_file():
        return {}
    try:
        found: dict[str, dict[str, Any]] = read_json(file)
    except BadInput as error:
        raise BadInput(f"{error}; repair or remove it") from error
    return found
