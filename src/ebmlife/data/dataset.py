"""Data sets, the kind that is held in memory, and endless batches of any."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from ebmlife.errors import BadInput
from ebmlife.sampling.rng import generator


class Dataset(Protocol):
    """Items of one shape, read by their row numbers."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one item: (C, H, W) for images, (2,) for points of the plane."""
        ...

    @property
    def labels(self) -> Tensor | None:
        """(N,) int64 class indices, or None."""
        ...

    def __len__(self) -> int: ...

    def take(self, rows: Tensor) -> Tensor:
        """int64 (B,) -> float32 (B, *shape), images in [-1, 1]."""
        ...


@runtime_checkable
class Varied(Protocol):
    """A data set whose items are augmented at random in training."""

    def take_varied(self, rows: Tensor, chances: Tensor) -> Tensor:
        """As `take`; random numbers (B, 3) in [0, 1) decide how each item is augmented."""
        ...


def from_bytes(pixels: Tensor) -> Tensor:
    """uint8 -> float32: x / 127.5 - 1, which takes 0 to -1 and 255 to 1 exactly."""
    return pixels.to(torch.float32).div_(127.5).sub_(1)


@dataclass(frozen=True, eq=False)
class InMemory:
    """A data set in memory.

    Args:
        items: uint8 images (N, C, H, W), which `take` scales to [-1, 1], or float32 items (N, ...), taken unchanged.
        labels: int64 class indices (N,). None: there are no labels.
    """

    items: Tensor
    labels: Tensor | None = None

    def __post_init__(self) -> None:
        if self.items.dtype not in (torch.uint8, torch.float32):
            raise BadInput(f"a data set holds uint8 or float32 items, not {self.items.dtype}")
        if self.labels is not None and self.labels.shape != self.items.shape[:1]:
            raise BadInput(
                f"{len(self.items)} items need as many labels, not labels of shape {tuple(self.labels.shape)}"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.items.shape[1:])

    def __len__(self) -> int:
        return len(self.items)

    def take(self, rows: Tensor) -> Tensor:
        items = self.items[rows]
        return from_bytes(items) if items.dtype == torch.uint8 else items


def _shifted(images: Tensor, reach: int, corners: Tensor) -> Tensor:
    """Each image, padded by `reach` black pixels and cropped at its own corner (2, B, 1) in 0 .. 2 reach."""
    n, channels, height, width = images.shape
    padded = F.pad(images, (reach,) * 4, value=-1.0)
    top, left = corners
    rows, columns = top + torch.arange(height), left + torch.arange(width)  # (B, H), (B, W)
    image, channel = torch.arange(n).view(-1, 1, 1, 1), torch.arange(channels).view(1, -1, 1, 1)
    return padded[image, channel, rows[:, None, :, None], columns[:, None, None, :]]


Draw = tuple[Tensor, Tensor]  # rows (B,), chances (B, 3)


class _Order:
    """The rows of every batch: a pure function of (length, size, seed) and the batch's position."""

    def __init__(self, length: int, size: int, seed: int, part: slice) -> None:
        self._length, self._size, self._seed, self._part = length, size, seed, part
        self._epoch = -1
        self._permutation = torch.empty(0, dtype=torch.int64)

    def draw(self, position: int) -> Draw:
        """The rows and random numbers of batch `position`; items left over at the end of an epoch are dropped."""
        epoch, batch = divmod(position, self._length // self._size)
        if epoch != self._epoch:
            rng = generator(self._seed, f"epoch {epoch}")
            self._epoch, self._permutation = epoch, torch.randperm(self._length, generator=rng)
        rows = self._permutation[batch * self._size : (batch + 1) * self._size]
        chances = torch.rand(self._size, 3, generator=generator(self._seed, f"crops {position}"))
        return rows[self._part], chances[self._part]


def _take(dataset: Dataset, draw: Draw) -> Tensor:
    rows, chances = draw
    return dataset.take_varied(rows, chances) if isinstance(dataset, Varied) else dataset.take(rows)


class _Decoder(TorchDataset[Tensor | BadInput]):
    """Decodes batches in a worker process.

    A BadInput is returned as a value: raised there, it would arrive with the worker's traceback.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def __getitem__(self, draw: Draw) -> Tensor | BadInput:
        try:
            return _take(self._dataset, draw)
        except BadInput as error:
            return error


class Batches:
    """Endless shuffled batches of a data set, in another order in each epoch.

    `position`, the number of batches drawn so far, is the whole state: the permutation of an epoch depends only on
    (seed, epoch), the flips, shifts and random crops of a batch only on (seed, position). Setting it resumes bit for
    bit.

    Args:
        dataset: The data set.
        size: Number of items in a batch.
        seed: Seed of the order and of all augmentation.
        flip: Whether half of the images are mirrored at random.
        crop: Largest random shift of images, in pixels.
        workers: Processes that decode batches ahead. A data set in memory uses none. The bits are the same.
        part: The rows of each batch that are returned: processes that share a batch take a part each.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        size: int = 128,
        seed: int = 0,
        flip: bool = False,
        crop: int = 0,
        workers: int = 0,
        part: slice = slice(None),
    ) -> None:
        if size < 1 or workers < 0:
            raise BadInput(f"batches need size >= 1 and workers >= 0, not {size} and {workers}")
        if len(dataset) < size:
            raise BadInput(
                f"the data set has {len(dataset)} items, fewer than one batch of {size}; make the batch smaller"
            )
        if (flip or crop) and len(dataset.shape) != 3:
            raise BadInput(f"flip and crop need images (C, H, W), not items of shape {dataset.shape}; turn them off")
        if crop and not 0 < crop < min(dataset.shape[1:]):
            raise BadInput(f"crop must leave some of the images of {dataset.shape[1]}x{dataset.shape[2]}, got {crop}")
        self._dataset, self._size, self._seed, self._part = dataset, size, seed, part
        self._flip, self._crop = flip, crop
        self._workers = 0 if isinstance(dataset, InMemory) else workers
        self._order = _Order(len(dataset), size, seed, part)
        self._position, self._waited = 0, 0.0
        self._ahead: Iterator[Tensor | BadInput] | None = None

    @property
    def position(self) -> int:
        """Number of batches drawn so far; it can be set."""
        return self._position

    @position.setter
    def position(self, position: int) -> None:
        if position < 0:
            raise BadInput(f"a position is a number of batches, at least 0, not {position}")
        self._position = position
        self._ahead = None

    def next(self) -> Tensor:
        """The next batch, float32 (size, *shape), or the chosen part of it."""
        began = time.monotonic()
        images = self._read()
        if self._flip:
            rng = generator(self._seed, f"flips {self._position}")
            mirrored = (torch.rand(self._size, generator=rng) < 0.5)[self._part]
            images = torch.where(mirrored[:, None, None, None], images.flip(-1), images)
        if self._crop:
            rng = generator(self._seed, f"shifts {self._position}")
            corners = torch.randint(0, 2 * self._crop + 1, (2, self._size, 1), generator=rng)
            images = _shifted(images, self._crop, corners[:, self._part])
        self._position += 1
        self._waited += time.monotonic() - began
        return images

    def waited(self) -> float:
        """Seconds spent in `next` since the last call of `waited`."""
        seconds, self._waited = self._waited, 0.0
        return seconds

    def next_labelled(self) -> tuple[Tensor, Tensor]:
        """The next batch and its labels, int64 (size,)."""
        if self._dataset.labels is None:
            raise BadInput("the data have no labels; choose a data set with labels")
        rows, _ = self._order.draw(self._position)
        return self.next(), self._dataset.labels[rows]

    def state_dict(self) -> dict[str, Any]:
        return {"position": self._position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = int(state["position"])

    def _read(self) -> Tensor:
        if not self._workers:
            return _take(self._dataset, self._order.draw(self._position))
        if self._ahead is None:
            self._ahead = self._start_workers()
        batch = next(self._ahead)
        if isinstance(batch, BadInput):
            self._ahead = None  # the queue has moved past this position, which was not drawn
            raise batch
        return batch

    def _start_workers(self) -> Iterator[Tensor | BadInput]:
        # A separate order, because the loader runs ahead of `position`, perhaps into the next epoch.
        order = _Order(len(self._dataset), self._size, self._seed, self._part)
        return iter(
            DataLoader(
                _Decoder(self._dataset),
                sampler=(order.draw(position) for position in count(self._position)),
                batch_size=None,
                num_workers=self._workers,
                generator=torch.Generator(),  # else the loader draws its workers' seed from the global generator
            )
        )
