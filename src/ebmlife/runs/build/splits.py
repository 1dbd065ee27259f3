"""The splits of a data set by name (train, test, ...), and whether two sets of images overlap."""

import re
from pathlib import Path
from typing import Any

from ebmlife.data import Dataset
from ebmlife.data.tars import find_tars
from ebmlife.errors import BadInput, nearest
from ebmlife.recipes.schema import Part, part
from ebmlife.runs.build.tables import DATA, describe

ALL, TRAIN, TEST, VALIDATION = "all", "train", "test", "validation"
_OTHERS = "name other images with --data.folder (or --data.shards, --data.name), or train with --data.held_out 0.1"


def split_of(data: Part) -> str:
    """Returns the name of the split that these settings of a data set choose."""
    options = data.options
    if "split" in options:
        return str(options["split"])
    if not _is_divided(data):
        return ALL
    return {True: TRAIN, False: _tests(data), None: TRAIN if data.kind == "folder" else ALL}[options.get("train")]


def choose_split(data: Part, split: str) -> Part:
    """Returns the settings that choose another split of the same data set."""
    if DATA.accepts(data, "split"):
        return _changed(data, split=split)
    known = _splits(data)
    if split not in known:
        problem = f"data of kind {data.kind!r} have no split {split!r} here{nearest(split, known)}"
        raise BadInput(problem if _is_divided(data) else f"{problem}; {_OTHERS}")
    return _changed(data, train=known[split]) if _is_divided(data) else data


def for_tests(data: Part) -> Part | None:
    """Returns the settings of the test split, or None if the data set has none."""
    return choose_split(data, _tests(data)) if _is_divided(data) else None


def test_part(data: Part) -> tuple[Dataset, bool]:
    """Returns the test split of a run's data, or all of the data, and whether the run was trained on it."""
    chosen = for_tests(data) or data
    return DATA.make(chosen), overlap(data, chosen) is not False


def overlap(trained: Part, chosen: Part) -> bool | None:
    """Whether two sets of images have some in common; None if their settings do not decide."""
    a, b = DATA.resolve(trained), DATA.resolve(chosen)
    if a.kind != b.kind:
        return None
    overlap_of = _OVERLAPS.get(a.kind)
    return None if overlap_of is None else overlap_of(a.options, b.options)


def _splits(data: Part) -> dict[str, bool | None]:
    """Returns the value of the option `train` for each split."""
    if not _is_divided(data):
        return {ALL: None}
    return {TRAIN: True, _tests(data): False} | ({ALL: None} if describe(data).whole else {})


def _is_divided(data: Part) -> bool:
    """Whether the option `train` chooses a split."""
    if data.kind == "folder":
        return data.options.get("held_out") is not None
    return DATA.accepts(data, "train")


def _tests(data: Part) -> str:
    return VALIDATION if data.kind == "torchvision" and data.options.get("name") == "ImageNet" else TEST


def _changed(data: Part, **options: Any) -> Part:
    return part(data.kind, **data.options | options)


def _same_halves(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return {a["train"], b["train"]} != {True, False}


def _torchvision(a: dict[str, Any], b: dict[str, Any]) -> bool | None:
    return _same_halves(a, b) if a["name"] == b["name"] else None


def _folder(a: dict[str, Any], b: dict[str, Any]) -> bool | None:
    if not _same_place(a["folder"], b["folder"]):
        return None
    divided = a["held_out"] is not None and a["held_out"] == b["held_out"]
    return not divided or (a["train"] is False) == (b["train"] is False)


def _huggingface(a: dict[str, Any], b: dict[str, Any]) -> bool | None:
    if a["name"] != b["name"] and not _same_place(a["name"], b["name"]):
        return None
    return any(_intersect(one, other) for one in a["split"].split("+") for other in b["split"].split("+"))


def _webdataset(a: dict[str, Any], b: dict[str, Any]) -> bool | None:
    try:
        shared = {tar.resolve() for tar in find_tars(a["shards"])} & {tar.resolve() for tar in find_tars(b["shards"])}
    except BadInput:  # the training images are not on this machine
        return None
    return True if shared else None


def _toy(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return True


_OVERLAPS: dict[str, Any] = {
    "digits": _same_halves,
    "cifar10": _same_halves,
    "mnist": _same_halves,
    "torchvision": _torchvision,
    "folder": _folder,
    "huggingface": _huggingface,
    "webdataset": _webdataset,
    "toy": _toy,
}


def _same_place(a: str, b: str) -> bool:
    one, other = (Path(place).expanduser() for place in (a, b))
    try:
        return one.samefile(other)
    except OSError:
        return one.absolute() == other.absolute()


def _intersect(one: str, other: str) -> bool:
    """Whether two splits of Hugging Face have rows in common: 'train[:80%]' and 'train[80%:]' have none. Splits that
    cannot be parsed count as having some."""
    (name, a), (second, b) = _sliced(one), _sliced(other)
    if name != second:
        return False
    if a is None or b is None or a[2] != b[2]:
        return True
    return max(a[0], b[0]) < min(a[1], b[1])


def _sliced(split: str) -> tuple[str, tuple[float, float, bool] | None]:
    """(name, (from, to, whether in percent)); None: all of it, or a slice that counts from the end."""
    match = re.fullmatch(r"\s*([\w.-]+)\[(\d*)(%?):(\d*)(%?)\]\s*", split)
    if match is None:
        return split.partition("[")[0].strip(), None
    name, first, a, last, b = match.groups()
    span = (float(first or 0), float(last) if last else float("inf"), "%" in a + b)
    return name, span if a == b or not (first and last) else None
