"""What `ebmlife attack` prints and writes when its attacks are finished: a table, a summary, plots and images."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ebmlife import attacks
from ebmlife.attacks import Examples, Record, masking
from ebmlife.attacks.record import incomparable
from ebmlife.defense.defended import DefendedClassifier
from ebmlife.errors import BadInput
from ebmlife.plots import pictures
from ebmlife.sampling.rng import derive_seed
from ebmlife.storage.atomic import atomic_write

UNDEFENDED = "undefended"  # the name of the record of the classifier without a defense
_SHOWN = 10  # images in images.png


def earlier_records(out: Path, settings: Mapping[str, dict[str, Any]]) -> dict[str, Record]:
    """Returns the records of earlier commands in the folder.

    Raises:
        BadInput: A record has another energy, other images, or another difference that makes it incomparable.
    """
    current = list(settings.values())[-1]  # of a defense
    found = {place.parent.name: Record.load(place) for place in sorted(out.glob("*/record"))}
    earlier = {name: record for name, record in found.items() if name not in settings}
    for name, record in earlier.items():
        changes = incomparable(record.settings, current)
        if changes:
            raise BadInput(f"{out / name} holds an attack that is not comparable ({changes}); choose another --out")
    return earlier


def write_table(records: dict[str, Record], out: Path) -> None:
    """Prints the table and the masking checks, and writes them as table.txt and summary.json."""
    text = "\n\n".join([attacks.table(records), *masking.load(out).values()])
    print(text)
    for file, content in (
        (out / "table.txt", text + "\n"),
        (out / "summary.json", json.dumps({name: record.summary() for name, record in records.items()}, indent=2)),
    ):
        with atomic_write(file) as unfinished:
            unfinished.write_text(content)


def write_plots(records: dict[str, Record], out: Path) -> None:
    pictures.save(out / "steps.png", attacks.plot_steps(records))
    sweep = attacks.plot_langevin_steps([record for name, record in records.items() if name != UNDEFENDED])
    if sweep is not None:
        pictures.save(out / "sweep.png", sweep)


def write_examples(record: Record, robust: DefendedClassifier, x: Tensor, *, seed: int, folder: Path) -> None:
    """Draws some images before and after attack and defense, as images.png beside the record's folder.

    Saved examples are kept: they belong to the record, and a second walk may differ in its last bits.
    """
    seeds = [derive_seed(seed, f"picture {i}") for i in range(min(_SHOWN, len(x)))]
    file = folder / "examples.safetensors"
    if file.is_file():
        examples = Examples.load(file)
    else:
        examples = Examples.of(record, robust, x, seeds=seeds)
        examples.save(file)
    pictures.save(folder.parent / "images.png", pictures.grid(examples.rows, columns=len(seeds)))
