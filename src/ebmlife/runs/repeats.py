"""Counts images, by their content, that a run was trained on."""

import hashlib
from collections import defaultdict

import torch
from torch import Tensor

from ebmlife.data import Cropped, Dataset, InMemory
from ebmlife.data.streamed import Files
from ebmlife.data.tars import Members
from ebmlife.errors import BadInput
from ebmlife.recipes.schema import Part, part
from ebmlife.runs.build import DATA
from ebmlife.storage import regular


def count(chosen: Part, data: Dataset, rows: Tensor, trained: Part) -> int | None:
    """Returns how many of these rows of a data set are also training images, or None if counting takes too long.

    Files and members of tar archives are compared byte by byte, data sets in memory pixel by pixel. An image that was
    encoded again counts as a different one.
    """
    try:
        ours, theirs = _encoded(chosen), _encoded(trained)
        if ours is not None and theirs is not None:
            return _same_bytes(ours, rows, theirs)
        training = None if DATA.accepts(trained, "crop") else DATA.make(trained)
    except BadInput:  # the training images are not available
        return None
    if isinstance(training, InMemory) and training.items.dtype == torch.uint8 and training.shape == data.shape:
        return _same_pixels(data.take(rows), training.items)
    return None


class _Encoded:
    """Images as encoded files on the disk."""

    def __init__(self, source: Files | Members) -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def size(self, row: int) -> int:
        if isinstance(self._source, Files):
            return (self._source.root / self._source.names[row]).stat().st_size
        return int(self._source.places[row, 2])

    def digest(self, row: int) -> bytes:
        if isinstance(self._source, Files):
            held = regular.read(self._source.root / self._source.names[row])
        else:
            tar, first, size = self._source.places[row].tolist()
            with self._source.tars[tar].open("rb") as stream:
                stream.seek(first)
                held = stream.read(size)
        return hashlib.sha256(held).digest()


def _encoded(chosen: Part) -> _Encoded | None:
    if not DATA.accepts(chosen, "crop"):
        return None
    made = DATA.make(part(chosen.kind, **chosen.options | {"crop": 1.0}))  # with a crop, nothing is decoded in advance
    source = made.images.source if isinstance(made, Cropped) else None
    return _Encoded(source) if isinstance(source, Files | Members) else None


def _same_bytes(ours: _Encoded, rows: Tensor, theirs: _Encoded) -> int:
    """Counts equal files. Only files of the same size are read; a million sizes take seconds."""
    by_size: dict[int, list[int]] = defaultdict(list)
    for row in range(len(theirs)):
        by_size[theirs.size(row)].append(row)

    def repeated(row: int) -> bool:
        candidates = by_size.get(ours.size(row), [])
        return bool(candidates) and ours.digest(row) in map(theirs.digest, candidates)

    return sum(map(repeated, rows.tolist()))


def _same_pixels(x: Tensor, training: Tensor) -> int:
    known = {_pixels(item) for item in training}
    bytes_of = ((x + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
    return sum(_pixels(item) in known for item in bytes_of)


def _pixels(item: Tensor) -> bytes:
    return hashlib.sha256(item.contiguous().numpy().tobytes()).digest()
