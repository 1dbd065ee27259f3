"""Few images at a time: each is cut into strips of columns that lie side by side where images would.

A block of the program has room for 8 or 16 images. With fewer, the strips of an image take the places of the missing
ones. A pixel at the edge of a strip has a neighbor in the next strip: every map that is read across edges has a further
column on either side, a copy of the neighbor's (zeros at the edge of the image), filled by `Op.GHOST`. All sums are
taken in the same order as without strips, so that the bits are the same.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ebmlife.sampling.native.steps import Map, Op, Step, Steps, Unsupported
from ebmlife.sampling.native.taps import Taps, collected


def in_strips(plan: Steps, strips: int) -> Steps:
    """The same steps for images in so many strips, or Unsupported where they do not fit."""
    maps = {name: found if found.width == 0 else _with_ghosts(found, strips) for name, found in plan.maps.items()}
    steps: list[Step] = []
    across: set[str] = set()  # maps that are read across the edges of strips
    for step in plan.steps:
        if step.taps is None:
            pixels = maps[step.source if step.kind is Op.REDUCE else step.target].pixels
            steps.append(replace(step, pixels=pixels))
        else:
            source, target = plan.maps[step.source], plan.maps[step.target]
            taps, crosses = _local(step.taps, source.width // strips, target.width // strips, source, target)
            across |= {step.source} if crosses else set()
            steps.append(replace(step, taps=taps, pixels=maps[step.target].pixels, convolution=None))
    return replace(plan, steps=_with_ghost_steps(steps, plan.input, across, maps, strips), maps=maps)


def places(width: int, pixels: int, strips: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """For each pixel of an image, where it lies in its strip's map, and which strip that is."""
    if strips == 1:
        return np.arange(pixels, dtype=np.int32), np.zeros(pixels, np.int32)
    row, column = np.divmod(np.arange(pixels), width)
    strip, local = np.divmod(column, width // strips)
    return (row * (width // strips + 2) + local + 1).astype(np.int32), strip.astype(np.int32)


def neighbors(images: int, strips: int, *, crossed: bool) -> NDArray[np.int32]:
    """For each place of a block, the place of its left neighbor, then that of its right one; -1 where there is none."""
    at = np.arange(images)
    left = np.where(at % strips > 0, at - 1, -1)
    right = np.where(at % strips < strips - 1, at + 1, -1)
    return np.concatenate([left, right] if crossed else [np.full(2 * images, -1)]).astype(np.int32)


def _with_ghosts(found: Map, strips: int) -> Map:
    if found.width % strips:
        raise Unsupported(f"{strips} strips of {found.width} columns")
    local = found.width // strips
    return replace(found, pixels=found.pixels // found.width * (local + 2), width=local + 2)


def _local(taps: Taps, wide: int, narrow: int, source: Map, target: Map) -> tuple[Taps, bool]:
    """The taps within a strip, from those of the image, and whether any is in a neighbor's column."""
    result = np.repeat(np.arange(len(taps.first) - 1), np.diff(taps.first))
    row, column = np.divmod(result, target.width)
    strip, local = np.divmod(column, narrow)
    source_row, source_column = np.divmod(taps.pixel, source.width)
    offset = source_column - strip * wide
    if offset.min() < -1 or offset.max() > wide:
        raise Unsupported("taps that reach beyond the next column")
    strips = target.width // narrow
    rows = np.stack(
        [row * (narrow + 2) + local + 1, source_row * (wide + 2) + offset + 1, taps.value.astype(np.float64)], axis=1
    )
    found, counts = np.unique(rows, axis=0, return_counts=True)
    at = found[:, 1].astype(np.int64) % (wide + 2)
    if (counts != strips - (at == 0) - (at == wide + 1)).any():
        raise Unsupported("strips that differ otherwise than at the edge of the image")
    pixels = target.pixels // target.width * (narrow + 2)
    part = found[:, 0].astype(np.int64), found[:, 1].astype(np.int64), found[:, 2].astype(taps.value.dtype)
    return collected([part], pixels=pixels), bool(((at == 0) | (at == wide + 1)).any())


def _with_ghost_steps(steps: list[Step], given: str, across: set[str], maps: dict[str, Map], strips: int) -> list[Step]:
    new = [_ghost(given, maps[given], crossed=True)] if given in across else []
    for step in steps:
        if step.kind is Op.REDUCE:  # sums over all columns; each strip has its part of the constant
            new.append(_ghost(step.source, maps[step.source], crossed=False))
            step = replace(step, bias=None if step.bias is None else partial(_share, step.bias, strips))
        new.append(step)
        if step.target in across:
            new.append(_ghost(step.target, maps[step.target], crossed=True))
    return new


def _share(value: Callable[[], Tensor], strips: int) -> Tensor:
    return value() / strips


def _ghost(name: str, found: Map, *, crossed: bool) -> Step:
    """Fills the further columns of a map, with the neighbors' or with zeros."""
    rows = found.pixels // found.width
    return Step(Op.GHOST, name, name, rows, found.channels, found.channels, places=found.width, crossed=crossed)
