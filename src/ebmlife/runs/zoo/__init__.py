"""Models that come with the package: `zoo:NAME` is taken wherever the folder of a run is.

Each is a folder here with a recipe and averaged weights, made by `python results/release.py RUN`: nothing to resume.
"""

from pathlib import Path

from ebmlife.errors import BadInput, nearest

PREFIX = "zoo:"
_HERE = Path(__file__).parent


def names() -> list[str]:
    return sorted(entry.parent.name for entry in _HERE.glob("*/recipe.json"))


def folder(name: str) -> Path:
    """Of 'zoo:NAME'."""
    wanted = name.removeprefix(PREFIX)
    if wanted not in names():
        raise BadInput(f"there is no {PREFIX}{wanted}{nearest(wanted, names())}")
    return _HERE / wanted
