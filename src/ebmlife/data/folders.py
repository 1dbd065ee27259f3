"""Any folder of images."""

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ebmlife.data import images
from ebmlife.data.dataset import Dataset
from ebmlife.data.labels import find_labels
from ebmlife.data.scanning import SUFFIXES, scan
from ebmlife.data.squares import decoded
from ebmlife.data.streamed import MEMORY, Files, check, images_of
from ebmlife.errors import BadInput, note
from ebmlife.storage.atomic import located


def folder(
    path: str | Path,
    *,
    size: int,
    channels: int = 3,
    crop: float | None = None,
    labels: str | None = None,
    held_out: float | None = None,
    train: bool | None = None,
    memory_limit: int = MEMORY,
) -> Dataset:
    """All images under `path`, sub-folders included, in sorted order, each cropped to its centre square and resized.

    Sets of at most `memory_limit` bytes of uint8 pixels are decoded now, larger ones when their rows are taken. If all
    images lie in sub-folders, an image's label is the rank of its top one among the sorted names, those of empty ones
    included: a part of ImageNet in its 1,000 folders keeps its labels. Else there are none.
    `labels` finds them elsewhere: 'file-name' takes the number that each file's name begins with, and the path of a
    file is that of a list of lines `NAME LABEL`. `held_out` is the share of the images that is kept for tests, chosen
    by a hash of their names: that part alone with `train` False, the rest without.
    Links to folders and to files outside `path` are left out, with a note; `path` itself may be a link.
    With `crop`, batches to train on are of random squares instead, of at least that share of the largest one's area.
    """
    root = located(path)
    check(size=size, channels=channels, crop=crop)
    if not root.is_dir():
        raise BadInput(f"{root}: no such folder")
    found = scan(root)
    left_out = f"left out {found.left_out}; copy images into the folder to use them" if found.skipped else ""
    if not found.names:
        reason = left_out or f"looked for {', '.join(SUFFIXES)}"
        raise BadInput(f"{root}: no image in this folder or below; {reason}")
    if left_out:
        note(f"{root}: {left_out}")
    names = _part(root, found.names, held_out, train)
    source = Files(root, names, find_labels(root, names, labels))
    return images_of(source, size=size, channels=channels, crop=crop, memory_limit=memory_limit)


def decode(path: Path, *, size: int, channels: int) -> NDArray[np.uint8]:
    """One image file as uint8 (C, size, size): its centre square."""
    return decoded(partial(images.read, path), str(path), size=size, channels=channels)


def _part(root: Path, names: Sequence[str], held_out: float | None, train: bool | None) -> Sequence[str]:
    """The images that are held out, or the others. Each is chosen by its own name: more images move none of them."""
    if held_out is None:
        if train is not None:
            raise BadInput(f"data.train is for folders of which data.held_out keeps a part for tests; {root} has none")
        return names
    if not 0 < held_out < 1:
        raise BadInput(f"data.held_out is a share of the images above 0 and below 1, not {held_out}")
    part = [name for name in names if (_chance(name) < held_out) == (train is False)]
    if not part:
        kept = "hold out" if train is False else "train on"
        raise BadInput(f"{root}: data.held_out {held_out} leaves none of {len(names)} images to {kept}; change it")
    return part


def _chance(name: str) -> float:
    """A number in [0, 1) that only the name decides."""
    return int.from_bytes(hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()[:6]) / 2**48
