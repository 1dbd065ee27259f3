"""Which pixels a convolution reads: for each pixel of the result, taps (pixel of the source, place in the kernel)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Taps(NamedTuple):
    first: NDArray[np.int32]  # (pixels + 1,): where the taps of each pixel of the result begin
    pixel: NDArray[np.int32]
    place: NDArray[np.int32]


def of_convolution(size: tuple[int, int], kernel: tuple[int, int], stride: int, padding: int) -> Taps:
    """Those of a convolution of images of `size`; taps that would read the padding are left out."""
    height, width = size
    rows = (height + 2 * padding - kernel[0]) // stride + 1
    columns = (width + 2 * padding - kernel[1]) // stride + 1
    i, j, a, b = np.meshgrid(*map(np.arange, (rows, columns, *kernel)), indexing="ij")
    y, x = i * stride - padding + a, j * stride - padding + b
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    return _sorted(
        result=(i * columns + j)[inside],
        pixel=(y * width + x)[inside],
        place=(a * kernel[1] + b)[inside],
        pixels=rows * columns,
    )


def backward(taps: Taps, pixels: int) -> Taps:
    """The taps of the backward pass: source and result change places."""
    result = np.repeat(np.arange(len(taps.first) - 1), np.diff(taps.first))
    return _sorted(result=taps.pixel.astype(np.int64), pixel=result, place=taps.place.astype(np.int64), pixels=pixels)


def _sorted(*, result: NDArray[np.int64], pixel: NDArray[np.int64], place: NDArray[np.int64], pixels: int) -> Taps:
    order = np.lexsort((place, result))
    first = np.zeros(pixels + 1, np.int32)
    np.cumsum(np.bincount(result, minlength=pixels), out=first[1:])
    return Taps(first, pixel[order].astype(np.int32), place[order].astype(np.int32))
