"""Images that are decoded when they are read, wherever they are stored."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ebmlife.data import images
from ebmlife.data.dataset import Dataset, InMemory, from_bytes
from ebmlife.data.squares import Cut, anywhere, center, decoded
from ebmlife.errors import BadInput

LARGEST = 8192  # pixels of a side
MEMORY = 2 * 2**30  # bytes of pixels up to which a set is held


class Source(Protocol):
    """Encoded images by row number, readable in any order and from any process."""

    @property
    def labels(self) -> Tensor | None: ...
    def __len__(self) -> int: ...

    def read(self, row: int) -> bytes:
        """The encoded image."""
        ...

    def name(self, row: int) -> str:
        """The name of the image in messages."""
        ...


@dataclass(frozen=True, eq=False)
class Files:
    """The image files of a folder."""

    root: Path
    names: Sequence[str]  # relative to root; strings, because a million Path objects take ten times the memory
    labels: Tensor | None = None

    def __len__(self) -> int:
        return len(self.names)

    def read(self, row: int) -> bytes:
        return images.read(self.root / self.names[row])

    def name(self, row: int) -> str:
        return str(self.root / self.names[row])


@dataclass(frozen=True, eq=False)
class Streamed:
    """Center squares of a source's images, decoded whenever they are read."""

    source: Source
    size: int
    channels: int

    @property
    def labels(self) -> Tensor | None:
        return self.source.labels

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, self.size, self.size)

    def __len__(self) -> int:
        return len(self.source)

    def take(self, rows: Tensor) -> Tensor:
        return self.cut(rows, [center] * len(rows))

    def cut(self, rows: Tensor, cuts: Sequence[Cut]) -> Tensor:
        """Returns the given squares instead of the center ones."""
        pixels = np.stack([self._decoded(row, cut) for row, cut in zip(rows.tolist(), cuts, strict=True)])
        return from_bytes(torch.from_numpy(pixels))

    def in_memory(self) -> InMemory:
        """The same data set, decoded once, in threads: Pillow releases Python's lock."""
        pixels = np.empty((len(self), *self.shape), dtype=np.uint8)
        with ThreadPoolExecutor() as pool:
            for row, image in enumerate(pool.map(self._decoded, range(len(self)))):
                pixels[row] = image
        return InMemory(torch.from_numpy(pixels), self.labels)

    def _decoded(self, row: int, cut: Cut = center) -> NDArray[np.uint8]:
        reading = partial(self.source.read, row)
        return decoded(reading, self.source.name(row), size=self.size, channels=self.channels, cut=cut)


@dataclass(frozen=True, eq=False)
class Cropped:
    """Center squares for evaluation, and random ones of at least `area` of the largest square's area for training."""

    images: Streamed
    area: float

    @property
    def labels(self) -> Tensor | None:
        return self.images.labels

    @property
    def shape(self) -> tuple[int, ...]:
        return self.images.shape

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: Tensor) -> Tensor:
        return self.images.take(rows)

    def take_varied(self, rows: Tensor, chances: Tensor) -> Tensor:
        return self.images.cut(rows, [anywhere(three, area=self.area) for three in chances.tolist()])


def check(*, size: int, channels: int, crop: float | None) -> None:
    if not 1 <= size <= LARGEST:
        raise BadInput(f"images need a size of at least 1 pixel and at most {LARGEST}, not {size}")
    if channels not in (1, 3):
        raise BadInput(f"images have 1 channel (gray) or 3 (RGB), not {channels}")
    if crop is not None and not 0 < crop <= 1:
        raise BadInput(f"random crops have at least a share of the area above 0 and at most 1, not {crop}")


def images_of(
    source: Source, *, size: int, channels: int, crop: float | None = None, memory_limit: int = MEMORY
) -> Dataset:
    """The data set of a source, decoded at once if it fits into `memory_limit` bytes and has no random crops."""
    check(size=size, channels=channels, crop=crop)
    streamed = Streamed(source, size, channels)
    if crop is not None:
        return Cropped(streamed, crop)
    return streamed if len(source) * channels * size * size > memory_limit else streamed.in_memory()
