"""The attacks on a run's defence, from RUN/attacks/NAME: tables, curves, and images with their predictions."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ebmlife.attacks import Examples, Record, Share, masking
from ebmlife.attacks.record import apart
from ebmlife.report import sound
from ebmlife.report.charts import Chart, Line
from ebmlife.report.images import Sheet, sheet
from ebmlife.report.notes import Notes
from ebmlife.report.safe_files import LARGEST, SafeFolder

_MODES = {  # what the attacker knows, by the gradient's name
    "bpda": "classifier and defence; the purifier's derivative taken for the identity",
    "full": "classifier and defence; the exact gradient through every Langevin step",
    "smooth": "classifier and defence; through every step, with a smooth energy in the backward pass",
    "transfer": "the classifier only",
    "fixed": "classifier, defence and its noise",
}


@dataclass(frozen=True)
class Row:
    name: str
    knows: str
    shares: dict[str, Share]
    cost: dict[str, int]


@dataclass(frozen=True)
class Example:
    """One image: its class, and what was predicted of it natural, attacked (by the classifier alone) and purified (by
    the defence)."""

    column: int  # of the sheet
    label: str
    predicted: tuple[str, str, str]


@dataclass(frozen=True)
class Attack:
    name: str
    settings: dict[str, Any]  # of the first record of a defence, or the only one
    images: int
    rows: Sequence[Row]
    charts: Sequence[Chart]
    shown: str  # the record that the examples are of
    examples: Sequence[Example]
    sheet: Sheet | None  # rows: natural, attacked, purified
    masking: str  # what the checks said, where they were made
    left_out: Sequence[str]  # records of other weights, images or settings than the newest


def read(own: Path, classes: Sequence[str] = (), notes: Notes | None = None) -> list[Attack]:
    """The finished attacks, by name; `classes`: names in place of numbers. What cannot be read becomes a note."""
    notes, inside = Notes() if notes is None else notes, SafeFolder(own)
    folders = sorted(path for path in (own / "attacks").glob("*") if path.is_dir())
    found = (
        notes.part(f"attacks/{folder.name}", partial(_attack, folder, classes, inside, notes), None)
        for folder in folders
    )
    return [attack for attack in found if attack is not None]


def _records(folder: Path, inside: SafeFolder, notes: Notes) -> dict[str, Record]:
    """By name, the oldest first."""
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
    record.accuracies  # noqa: B018  # whether they follow from what was loaded
    return record


def _said(folder: Path, inside: SafeFolder) -> dict[str, str]:
    """What the checks for masked gradients said."""
    for file in (folder / "table.txt", *folder.glob("masking-*/checks.txt")):
        inside.file(file, largest=LARGEST)
    return masking.kept(folder)


def _shown(file: Path, inside: SafeFolder, classes: Sequence[str]) -> tuple[list[Example], Sheet]:
    inside.file(file)
    found = Examples.load(file)
    return _examples(found, classes), _sheet(found)


def _attack(folder: Path, classes: Sequence[str], inside: SafeFolder, notes: Notes) -> Attack | None:
    found = _records(folder, inside, notes)
    if not found:
        return None
    newest = max(reversed(found.values()), key=lambda record: record.settings["langevin_steps"] > 0)  # of a defence
    left_out = sorted(name for name, record in found.items() if apart(record.settings, newest.settings))
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
    said: dict[str, str] = notes.part(f"attacks/{folder.name}: its checks", lambda: _said(folder, inside), {})
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
        "\n\n".join(text for name, text in said.items() if name not in left_out),
        left_out,
    )


def _age(place: Path) -> tuple[int, str]:
    return place.lstat().st_mtime_ns, str(place)


def _order(item: tuple[str, Record]) -> tuple[int, bool, int]:
    """By Langevin steps, the bare classifier first, then as the modes are listed above."""
    (name, record), modes = item, list(_MODES)
    mode = record.settings["gradient"]
    rank = modes.index(mode) if mode in modes else len(modes)
    return record.settings["langevin_steps"], name.endswith("-k0"), rank


def _row(name: str, record: Record) -> Row:
    defended = record.settings["langevin_steps"] > 0
    mode = record.settings["gradient"]
    return Row(
        name, _MODES.get(mode, mode) if defended else "the classifier; no defence", record.accuracies, record.cost
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
        f"Of {len(first.tally.labels):,} images under {first.settings['threat']}. An image counts as lost from the"
        " first step whose break a second, larger draw confirmed.",
        scale=(0.0, 1.02),
    )


def _over_langevin_steps(records: dict[str, Record]) -> list[Chart]:
    """Accuracy against the defence's length (Figure lang_sweep), where there are several."""
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
            "Accuracy against the defence's length",
            ks,
            [Line(name, [values.get(k) for k in ks]) for name, values in lines.items()],
            "Langevin steps of the defence",
            "accuracy",
            "Natural images, and verified accuracy under attack.",
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
