"""An exam on disk: life-cycle.json, life-cycle.safetensors, the curves as life-cycle.png, the chains as strip.png."""

import json
from dataclasses import asdict
from pathlib import Path

from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from ebmlife.errors import BadInput
from ebmlife.exam.cycle import LifeCycle
from ebmlife.plots import charts, pictures
from ebmlife.plots.charts import Panel
from ebmlife.storage import contents, regular
from ebmlife.storage.atomic import atomic_write, read_json

_TENSORS = ("strip", "states")


def save(cycle: LifeCycle, folder: Path) -> list[Path]:
    """Writes the exam into the folder; the files, the most telling first."""
    files = [folder / name for name in ("strip.png", "life-cycle.png", "life-cycle.json", "life-cycle.safetensors")]
    with atomic_write(files[3]) as unfinished:
        save_file({name: getattr(cycle, name).contiguous() for name in _TENSORS}, unfinished)
    pictures.save(files[0], pictures.ages(cycle.strip, cycle.steps))
    pictures.save(files[1], curves(cycle))
    with atomic_write(files[2]) as unfinished:  # the last: where it is, all is
        plain = {name: value for name, value in asdict(cycle).items() if name not in _TENSORS}
        unfinished.write_text(json.dumps(plain, indent=1, allow_nan=False))
    return files


def load(folder: Path) -> LifeCycle:
    """An exam that was saved."""
    try:
        plain = read_json(folder / "life-cycle.json")
        plain["ranges"] = {name: tuple(both) for name, both in plain["ranges"].items()}
        cycle = LifeCycle(**(plain | load_file(regular.check(folder / "life-cycle.safetensors"))))
        _check(cycle)
    except (BadInput, OSError, ValueError, TypeError, KeyError, AttributeError, SafetensorError) as error:
        raise BadInput(f"{folder} holds no finished exam that can be read: {error}") from error
    return cycle


def _check(cycle: LifeCycle) -> None:
    """Whether it is the record of an exam, and not only of that form."""
    steps = len(cycle.steps)
    like = {
        "steps": [0] * steps,
        "verdict": "",
        "stable_until": 0,
        "reasons": [""] * len(cycle.reasons),
        "ranges": dict.fromkeys(cycle.ranges, (0.0, 0.0)),
        "settings": {},
        "complete": True,
    }
    found = {name: getattr(cycle, name) for name in like}
    settings = {"steps": 0, "step_size": 0.0, "chains": 0, "distance": ""}  # what pages are made of
    said = contents.mismatch(found, like) or contents.mismatch({n: cycle.settings.get(n) for n in settings}, settings)
    if said is None and (len(cycle.strip) != steps or not cycle.strip.isfinite().all()):
        said = "the strip is not one of its steps"
    for name, column in cycle.figures.items():
        numbers = [0.0 if value is None else value for value in column]
        said = said or contents.mismatch(numbers, [0.0] * steps, name)
    if said is not None:
        raise ValueError(said)


def curves(cycle: LifeCycle) -> Image.Image:
    """Every figure over the steps, with data's range where there is one."""
    figures, ranges = cycle.figures, cycle.ranges
    shown = [
        Panel(name if name != "distance" else cycle.settings["distance"], {name: figures[name]}, ranges.get(name), log)
        for name, log in (
            ("distance", True),
            ("contrast", False),
            ("variation", False),
            ("outside", False),
            ("diversity", False),
            ("energy", False),
            ("gradient", True),
            ("agreement", False),
        )
        if name in figures
    ]
    rhats = {name: figures[name] for name in ("rhat_energy", "rhat_features") if any(figures[name])}
    if rhats:
        shown.append(Panel("R-hat of parallel chains", rhats, logarithmic=True))
    until = "" if cycle.verdict == "longrun" else f", stable to {cycle.stable_until:,} steps"
    return charts.panels(cycle.steps, shown, title=f"{cycle.verdict}{until}")
