"""Models in the package: `zoo:NAME` can be used wherever the folder of a run is expected.

Each is a folder here with a recipe and averaged weights, written by `python results/release.py RUN`. None can be
resumed.
"""

from pathlib import Path

from ebmlife.errors import BadInput, nearest

PREFIX = "zoo:"
_HERE = Path(__file__).parent


def names() -> list[str]:
    """Returns the names of all models, without 'zoo:'."""
    return sorted(entry.parent.name for entry in _HERE.glob("*/recipe.json"))


def folder(name: str) -> Path:
    """Returns the folder of 'zoo:NAME'."""
    model = name.removeprefix(PREFIX)
    if model not in names():
        raise BadInput(f"there is no {PREFIX}{model}{nearest(model, names())}")
    return _HERE / model
