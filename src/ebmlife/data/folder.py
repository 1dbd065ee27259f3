"""Any folder of images."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from ebmlife.data.dataset import Dataset, InMemory, from_bytes
from ebmlife.errors import BadInput

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")


def folder(path: str | Path, *, size: int, channels: int = 3, memory_limit: int = 2 * 2**30) -> Dataset:
    """All images under `path`, sub-folders included, in sorted order, each cropped to its centre square and resized.

    Sets of at most `memory_limit` bytes of uint8 pixels are decoded now, larger ones when their rows are taken. If all
    images lie in sub-folders, an image's label is the rank of its top one among the sorted names; else there are none.
    """
    root = Path(path).expanduser()
    if size < 1:
        raise BadInput(f"images need a size of at least 1 pixel, not {size}")
    if channels not in (1, 3):
        raise BadInput(f"images have 1 channel (grey) or 3 (RGB), not {channels}")
    if not root.is_dir():
        raise BadInput(f"{root}: no such folder")
    names = _names(root)
    if not names:
        raise BadInput(f"{root}: no image in this folder or below; looked for {', '.join(SUFFIXES)}")
    streamed = Streamed(root, names, size, channels, labels=_labels(names))
    if len(names) * channels * size * size > memory_limit:
        return streamed
    return streamed.in_memory()


@dataclass(frozen=True, eq=False)
class Streamed:
    """A folder of images decoded as they are taken."""

    root: Path
    names: Sequence[str]  # relative to root; strings, because a million of Path would weigh ten times as much
    size: int
    channels: int
    labels: Tensor | None

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, self.size, self.size)

    def __len__(self) -> int:
        return len(self.names)

    def take(self, rows: Tensor) -> Tensor:
        pixels = np.stack([self._decoded(row) for row in rows.tolist()])
        return from_bytes(torch.from_numpy(pixels))

    def in_memory(self) -> InMemory:
        """The same set decoded once, in threads: Pillow decodes and resizes outside Python's lock."""
        pixels = np.empty((len(self), *self.shape), dtype=np.uint8)
        with ThreadPoolExecutor() as pool:
            for row, image in enumerate(pool.map(self._decoded, range(len(self)))):
                pixels[row] = image
        return InMemory(torch.from_numpy(pixels), self.labels)

    def _decoded(self, row: int) -> NDArray[np.uint8]:
        return decode(self.root / self.names[row], size=self.size, channels=self.channels)


def decode(path: Path, *, size: int, channels: int) -> NDArray[np.uint8]:
    """One image file as uint8 (C, size, size)."""
    try:
        with Image.open(path) as file:
            return squared(file, size=size, channels=channels)
    except Exception as error:  # Pillow's decoders raise a dozen kinds of exceptions for broken files
        raise BadInput(f"{path}: cannot be read as an image ({error}); repair or remove the file") from error


def squared(file: Image.Image, *, size: int, channels: int) -> NDArray[np.uint8]:
    """uint8 (C, size, size): an image's centre square, resized with Pillow's antialiased bicubic filter.

    Bicubic, because it rings less than Lanczos at hard edges; it is also the filter of clean-fid. Orientation tags are
    obeyed; transparent pixels are laid on white.
    """
    image = ImageOps.exif_transpose(file)
    if image.mode[0] in "IF":
        # Pillow would clip these to 0..255: 16-bit images turn white, floats in [0, 1] black.
        raise ValueError(f"pixels of mode {image.mode} are not 8-bit; convert the file first")
    image = _opaque(image).convert("L" if channels == 1 else "RGB")
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    box = (left, top, left + side, top + side)
    pixels = np.asarray(image.resize((size, size), Image.Resampling.BICUBIC, box=box))
    return pixels.reshape(size, size, channels).transpose(2, 0, 1)


def _opaque(image: Image.Image) -> Image.Image:
    """The image over white if some of it is transparent, whose hidden colours are arbitrary."""
    if image.mode not in ("RGBA", "LA", "PA") and "transparency" not in image.info:
        return image
    layer = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)


def _names(root: Path) -> tuple[str, ...]:
    """Paths of the images under root, relative to it, sorted. Links are followed; hidden files are not images."""
    found = []
    for place, _, files in os.walk(root, followlinks=True):
        images = (name for name in files if name.lower().endswith(SUFFIXES) and not name.startswith("."))
        found += [(Path(place) / name).relative_to(root).as_posix() for name in images]
    return tuple(sorted(found))


def _labels(names: Sequence[str]) -> Tensor | None:
    tops = [name.split("/")[0] for name in names if "/" in name]
    if len(tops) < len(names):
        return None
    rank = {top: index for index, top in enumerate(sorted(set(tops)))}
    return torch.tensor([rank[top] for top in tops])
