"""The attacks on the defense of a run, from RUN/attacks/NAME: tables, curves, and images with their predictions."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ebmlife.attacks import Examples, Record, Share, masking
from ebmlife.attacks.record import incomparable
from ebmlife.report import sound
from ebmlife.report.charts import Chart, Line
from ebmlife.report.images import Sheet, sheet
from ebmlife.report.notes import Notes
from ebmlife.report.safe_files import LARGEST, SafeFolder

_MODES = {  # what the attacker knows, by the gradient's name
    "bpda": "classifier and defense; the purifier's derivative treated as the identity",
    "full": "classifier and defense; the exact gradient through every Langevin step",
    "smooth": "classifier and defense; through every step, with a smooth energy in the backward pass",
    "transfer": "the classifier only",
    "fixed": "classifier, defense and its noise",
}


@dataclass(frozen=True)
class Row:
    name: str
    knows: str
    shares: dict[str, Share]
    cost: dict[str, int]


@dataclass(frozen=True)
class Example:
    """One image with its class and three predictions: the bare classifier's for the natural and the attacked image, and
    the defense's for the attacked image."""

    column: int  # of the sheet
    label: str
    predicted: tuple[str, str, str]


@dataclass(frozen=True)
class Attack:
    name: str
    settings: dict[str, Any]  # of the first record of a defense, or of the only record
    images: int
    rows: Sequence[Row]
    charts: Sequence[Chart]
    shown: str  # the record of the examples
    examples: Sequence[Example]
    sheet: Sheet | None  # rows: natural, attacked, purified
    masking: str  # the results of the masking checks; "" without any
    left_out: Sequence[str]  # records with other weights, images or settings than the newest one


def read(own: Path, classes: Sequence[str] = (), notes: Notes | None = None) -> list[Attack]:
    """Returns the finished attacks, sorted by name. What cannot be read becomes a note.

    `classes` are the names of the classes; without them, examples show numbers.
    """
    notes, inside = Notes() if notes is None else notes, SafeFolder(own)
    folders = sorted(path for path in (own / "attacks").glob("*") if path.is_dir())
    found = (
        notes.part(f"attacks/{folder.name}", partial(_attack, folder, classes, inside, notes), None)
        for folder in folders
    )
    return [attack for attack in found if attack is not None]


def _records(folder: Path, inside: SafeFolder, notes: Notes) -> dict[str, Record]:
    """Returns the records by name, the oldest first."""
    found = {}
    for place in sorted(folder.glob("*/record"), key=_age):
        name = place.parent.name
        record = notes.part(f"attacks/{folder.name}/{name}", partial(_record, place, inside), None)
        if record is not None:
            found[name] = record
    return found


def _record(place: Path, inside: SafeFolder) -> Record:
    inside.tree(place)
    record = Record.load(place)
    sound.check_settings(record.settings)
    record.accuracies  # noqa: B018  # raises here if the loaded values are inconsistent
    return record


def _masking(folder: Path, inside: SafeFolder) -> dict[str, str]:
    """Returns the results of the masking checks, by the name of the attack."""
    for file in (folder / "table.txt", *folder.glob("masking-*/checks.txt")):
        inside.file(file, largest=LARGEST)
    return masking.load(folder)


def _shown(file: Path, inside: SafeFolder, classes: Sequence[str]) -> tuple[list[Example], Sheet]:
    inside.file(file)
    found = Examples.load(file)
    return _examples(found, classes), _sheet(found)


def _attack(folder: Path, classes: Sequence[str], inside: SafeFolder, notes: Notes) -> Attack | None:
    found = _records(folder, inside, notes)
    if not found:
        return None
    newest = max(reversed(found.values()), key=lambda record: record.settings["langevin_steps"] > 0)  # of a defense
    left_out = sorted(name for name, record in found.items() if incomparable(record.settings, newest.settings))
    records = dict(sorted(((name, record) for name, record in found.items() if name not in left_out), key=_order))
    defended = {name: record for name, record in records.items() if record.settings["langevin_steps"]}
    with_examples = [name for name in records if os.path.lexists(folder / name / "examples.safetensors")]
    shown = max(with_examples, key=lambda name: int(records[name].settings["langevin_steps"]), default="")
    none: tuple[list[Example], Sheet | None] = ([], None)
    file = folder / shown / "examples.safetensors"
    examples, pictures = (
        notes.part(f"attacks/{folder.name}/{shown}/{file.name}", lambda: _shown(file, inside, classes), none)
        if shown
        else none
    )
    checks: dict[str, str] = notes.part(f"attacks/{folder.name}: its checks", lambda: _masking(folder, inside), {})
    first = next(iter((defended or records).values()))
    return Attack(
        folder.name,
        first.settings,
        len(first.tally.labels),
        [_row(name, record) for name, record in records.items()],
        [_over_steps(records), *_over_langevin_steps(defended)],
        shown,
        examples,
        pictures,
        "\n\n".join(text for name, text in checks.items() if name not in left_out),
        left_out,
    )


def _age(place: Path) -> tuple[int, str]:
    return place.lstat().st_mtime_ns, str(place)


def _order(item: tuple[str, Record]) -> tuple[int, bool, int]:
    """Sorts by Langevin steps, the bare classifier first, then in the order of `_MODES`."""
    (name, record), modes = item, list(_MODES)
    mode = record.settings["gradient"]
    rank = modes.index(mode) if mode in modes else len(modes)
    return record.settings["langevin_steps"], name.endswith("-k0"), rank


def _row(name: str, record: Record) -> Row:
    defended = record.settings["langevin_steps"] > 0
    mode = record.settings["gradient"]
    return Row(
        name, _MODES.get(mode, mode) if defended else "the classifier; no defense", record.accuracies, record.cost
    )


def _over_steps(records: dict[str, Record]) -> Chart:
    lines = []
    for name, record in records.items():
        shares = list(record.by_step().values())
        interval = ([s.low for s in shares], [s.high for s in shares]) if len(records) <= 3 else (None, None)
        lines.append(Line(name, [share.value for share in shares], *interval))
    first = next(iter(records.values()))
    return Chart(
        "Accuracy over the attack's steps",
        list(first.by_step()),
        lines,
        "attack step",
        "verified accuracy",
        f"{len(first.tally.labels):,} images under {first.settings['threat']}. An image counts as broken from the"
        " first step at which a second, larger draw confirmed the wrong prediction.",
        scale=(0.0, 1.02),
    )


def _over_langevin_steps(records: dict[str, Record]) -> list[Chart]:
    """Returns accuracy against the Langevin steps of the defense (Figure lang_sweep), if their numbers differ."""
    ks = sorted({int(record.settings["langevin_steps"]) for record in records.values()})
    if len(ks) < 2:
        return []
    lines: dict[str, dict[int, float]] = {"natural images": {}}
    for record in records.values():
        k = int(record.settings["langevin_steps"])
        if k not in lines["natural images"] or not record.known_noise:
            lines["natural images"][k] = record.natural.value
        lines.setdefault(record.settings["gradient"], {})[k] = record.verified.value
    return [
        Chart(
            "Accuracy against the length of the defense",
            ks,
            [Line(name, [values.get(k) for k in ks]) for name, values in lines.items()],
            "Langevin steps of the defense",
            "accuracy",
            "Accuracy on natural images, and verified accuracy under attack.",
            scale=(0.0, 1.02),
        )
    ]


def _examples(found: Examples, classes: Sequence[str]) -> list[Example]:
    def name(label: int) -> str:
        return classes[label] if 0 <= label < len(classes) else str(label)

    columns = found.labels, found.natural_bare, found.attacked_bare, found.attacked_defended
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [Example(i, name(label), (name(a), name(b), name(c))) for i, (label, a, b, c) in enumerate(rows)]


def _sheet(found: Examples) -> Sheet:
    return sheet(torch.stack([found.natural, found.attacked, found.attacked_purified]))
