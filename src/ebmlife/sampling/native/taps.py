"""Which pixels an operation reads: for each pixel of the result, taps.

A tap is a pixel of the source and, for a convolution, its place in the kernel, or, for a mixture, its coefficient."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Taps(NamedTuple):
    first: NDArray[np.int32]  # (pixels + 1,): where the taps of each pixel of the result begin
    pixel: NDArray[np.int32]
    value: NDArray[np.int32] | NDArray[np.float32]  # place in the kernel, or coefficient


def of_convolution(size: tuple[int, int], kernel: tuple[int, int], stride: int, padding: int) -> Taps:
    """Those of a convolution of images of `size`; taps that would read the padding are left out."""
    height, width = size
    rows = (height + 2 * padding - kernel[0]) // stride + 1
    columns = (width + 2 * padding - kernel[1]) // stride + 1
    i, j, a, b = np.meshgrid(*map(np.arange, (rows, columns, *kernel)), indexing="ij")
    y, x = i * stride - padding + a, j * stride - padding + b
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    part = (i * columns + j)[inside], (y * width + x)[inside], (a * kernel[1] + b)[inside]
    return collected([part], pixels=rows * columns)


def averaging(taps: Taps) -> Taps:
    """The same pixels, each as one of four."""
    return taps._replace(value=np.full(len(taps.pixel), 0.25, np.float32))


def backward(taps: Taps, pixels: int) -> Taps:
    """The taps of the backward pass: source and result change places."""
    result = np.repeat(np.arange(len(taps.first) - 1), np.diff(taps.first))
    return collected([(taps.pixel, result, taps.value)], pixels=pixels)


class Band(NamedTuple):
    """Taps by place in the kernel: the value of a tap is a pixel of the result. Both pixels count from a first one."""

    taps: Taps
    first_source: int
    sources: int  # pixels of the source, from the first on
    first_result: int
    results: int


def by_place(taps: Taps, places: int, pixels: int) -> list[Band]:
    """The taps of a convolution for each place in the kernel, in bands of so many pixels of the result."""
    result, total = np.repeat(np.arange(len(taps.first) - 1), np.diff(taps.first)), len(taps.first) - 1
    bands = []
    for first in range(0, total, pixels):
        inside = (first <= result) & (result < first + pixels)
        source = taps.pixel[inside]
        low, high = int(source.min()), int(source.max()) + 1
        part = collected([(taps.value[inside], source - low, result[inside] - first)], pixels=places)
        bands.append(Band(part, low, high - low, first, min(pixels, total - first)))
    return bands


def collected(parts: Sequence[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]], *, pixels: int) -> Taps:
    """Taps from parts (pixels of the result, pixels of the source, values), for a result of so many pixels.

    Whole values are places in a kernel, others coefficients. Sorted, so that sums are always taken in one order."""
    result, pixel, value = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.lexsort((value, pixel, result)) if value.dtype.kind == "f" else np.lexsort((value, result))
    first = np.zeros(pixels + 1, np.int32)
    np.cumsum(np.bincount(result, minlength=pixels), out=first[1:])
    value = value[order]
    typed = value.astype(np.float32) if value.dtype.kind == "f" else value.astype(np.int32)
    return Taps(first, pixel[order].astype(np.int32), typed)
