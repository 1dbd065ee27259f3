"""Any folder of images."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from ebmlife.data.dataset import Dataset
from ebmlife.data.squares import decoded
from ebmlife.data.streamed import MEMORY, Files, check, images_of
from ebmlife.errors import BadInput

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")


def folder(
    path: str | Path, *, size: int, channels: int = 3, crop: float | None = None, memory_limit: int = MEMORY
) -> Dataset:
    """All images under `path`, sub-folders included, in sorted order, each cropped to its centre square and resized.

    Sets of at most `memory_limit` bytes of uint8 pixels are decoded now, larger ones when their rows are taken. If all
    images lie in sub-folders, an image's label is the rank of its top one among the sorted names, those of empty ones
    included: a part of ImageNet in its 1,000 folders keeps its labels. Else there are none.
    With `crop`, batches to train on are of random squares instead, of at least that share of the largest one's area.
    """
    root = Path(path).expanduser()
    check(size=size, channels=channels, crop=crop)
    if not root.is_dir():
        raise BadInput(f"{root}: no such folder")
    names = _names(root)
    if not names:
        raise BadInput(f"{root}: no image in this folder or below; looked for {', '.join(SUFFIXES)}")
    source = Files(root, names, _labels(root, names))
    return images_of(source, size=size, channels=channels, crop=crop, memory_limit=memory_limit)


def decode(path: Path, *, size: int, channels: int) -> NDArray[np.uint8]:
    """One image file as uint8 (C, size, size): its centre square."""
    return decoded(partial(Image.open, path), str(path), size=size, channels=channels)


def _names(root: Path) -> tuple[str, ...]:
    """Paths of the images under root, relative to it, sorted. Links are followed; hidden files are not images."""
    found = []
    for place, _, files in os.walk(root, followlinks=True):
        images = (name for name in files if name.lower().endswith(SUFFIXES) and not name.startswith("."))
        found += [(Path(place) / name).relative_to(root).as_posix() for name in images]
    return tuple(sorted(found))


def _labels(root: Path, names: Sequence[str]) -> Tensor | None:
    if not all("/" in name for name in names):
        return None
    tops = [name.split("/")[0] for name in names]
    shown = {place.name for place in root.iterdir() if place.is_dir() and not place.name.startswith(".")}
    rank = {top: index for index, top in enumerate(sorted(shown | set(tops)))}
    return torch.tensor([rank[top] for top in tops])
