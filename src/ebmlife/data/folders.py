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
    """All images of a folder and its sub-folders, in sorted order, cropped to their center square and resized.

    Links to folders, and to files outside `path`, are skipped with a note; `path` itself may be a link.

    Args:
        path: The folder.
        size: Height and width of the images.
        channels: 1 for gray, 3 for color.
        crop: If given, training batches have random squares instead, of at least this share of the largest square's
            area.
        labels: Where labels come from. None: the rank of an image's top sub-folder among the sorted names, empty
            folders included, so that a part of ImageNet in its 1,000 folders keeps its labels; there are none if an
            image lies in no sub-folder. 'file-name': the number that a file's name begins with. Otherwise the path of
            a list of lines `NAME LABEL`.
        held_out: Share of the images that is kept for tests, chosen by a hash of their names.
        train: False: only the images that are held out. Otherwise: all others.
        memory_limit: Data sets of at most this many bytes of pixels are decoded at once, larger ones on demand.

    Returns:
        The data set.
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
    """One image file as uint8 (C, size, size): its center square."""
    return decoded(partial(images.read, path), str(path), size=size, channels=channels)


def _part(root: Path, names: Sequence[str], held_out: float | None, train: bool | None) -> Sequence[str]:
    """The images that are held out, or the others. Only its name decides about each, so that new images move none."""
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
