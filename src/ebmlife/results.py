"""What was measured of a run, kept in its folder beside the command that measured it."""

import json
from pathlib import Path

from ebmlife.errors import BadInput
from ebmlife.files import whole

Results = dict[str, dict[str, float]]  # by command


def record(run: Path, command: str, figures: dict[str, float]) -> None:
    """Adds figures to results.json; those of the same command before are replaced."""
    found = read(run) | {command: figures}
    with whole(run / "results.json") as unfinished:
        unfinished.write_text(json.dumps(found, indent=2))


def read(run: Path) -> Results:
    file = run / "results.json"
    if not file.is_file():
        return {}
    try:
        found: Results = json.loads(file.read_text())
    except ValueError as error:
        raise BadInput(f"{file} is not JSON ({error}); repair or remove it") from error
    return found
