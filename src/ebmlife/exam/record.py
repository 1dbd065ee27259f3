"""A finished exam on disk: life-cycle.json and life-cycle.safetensors, and the images life-cycle.png and strip.png."""

import json
from dataclasses import asdict
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from ebmlife.errors import BadInput
from ebmlife.exam.cycle import LifeCycle
from ebmlife.exam.plots import draw_curves
from ebmlife.plots import pictures
from ebmlife.storage import contents, regular
from ebmlife.storage.atomic import atomic_write, read_json

_TENSORS = ("strip", "states")
_SAVED_AS = {"metrics": "figures"}  # keys of life-cycle.json that differ from the attributes, as in the first files


def save(cycle: LifeCycle, folder: Path) -> list[Path]:
    """Writes an exam.

    Args:
        cycle: What was measured.
        folder: Folder to write to.

    Returns:
        The files: strip.png, life-cycle.png, life-cycle.json, life-cycle.safetensors.
    """
    files = [folder / name for name in ("strip.png", "life-cycle.png", "life-cycle.json", "life-cycle.safetensors")]
    with atomic_write(files[3]) as unfinished:
        save_file({name: getattr(cycle, name).contiguous() for name in _TENSORS}, unfinished)
    pictures.save(files[0], pictures.ages(cycle.strip, cycle.steps))
    pictures.save(files[1], draw_curves(cycle))
    with atomic_write(files[2]) as unfinished:  # last: where this file exists, all do
        plain = {_SAVED_AS.get(name, name): value for name, value in asdict(cycle).items() if name not in _TENSORS}
        unfinished.write_text(json.dumps(plain, indent=1, allow_nan=False))
    return files


def load(folder: Path) -> LifeCycle:
    """Reads a finished exam.

    Args:
        folder: Folder that `save` wrote to.

    Raises:
        BadInput: If there is no finished exam, or it is damaged.
    """
    names = {saved: name for name, saved in _SAVED_AS.items()}
    try:
        plain = {names.get(key, key): value for key, value in read_json(folder / "life-cycle.json").items()}
        plain["ranges"] = {name: tuple(both) for name, both in plain["ranges"].items()}
        cycle = LifeCycle(**(plain | load_file(regular.check(folder / "life-cycle.safetensors"))))
        _validate(cycle)
    except (BadInput, OSError, ValueError, TypeError, KeyError, AttributeError, SafetensorError) as error:
        raise BadInput(f"{folder} holds no finished exam that can be read: {error}") from error
    return cycle


def _validate(cycle: LifeCycle) -> None:
    """Raises ValueError unless the types and lengths are those of an exam."""
    steps = len(cycle.steps)
    expected = {
        "steps": [0] * steps,
        "verdict": "",
        "stable_until": 0,
        "reasons": [""] * len(cycle.reasons),
        "ranges": dict.fromkeys(cycle.ranges, (0.0, 0.0)),
        "settings": {},
        "complete": True,
    }
    found = {name: getattr(cycle, name) for name in expected}
    settings = {"steps": 0, "step_size": 0.0, "chains": 0, "distance": ""}  # those that pages show
    problem = contents.mismatch(found, expected) or contents.mismatch(
        {name: cycle.settings.get(name) for name in settings}, settings
    )
    if problem is None and (len(cycle.strip) != steps or not cycle.strip.isfinite().all()):
        problem = "the strip does not fit the steps"
    for name, column in cycle.metrics.items():
        numbers = [0.0 if value is None else value for value in column]
        problem = problem or contents.mismatch(numbers, [0.0] * steps, name)
    if problem is not None:
        raise ValueError(problem)
