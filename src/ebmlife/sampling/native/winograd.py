"""Convolutions with fewer products: Winograd's minimal filtering, the same sums up to rounding.

Along one dimension, two results of a kernel of three places need six products; read as differences and sums of the
source they need four; a kernel of two places needs three products for two results and five for four, instead of four
and eight. In two dimensions that is 16 products instead of 36, 9 instead of 16, 25 instead of 64. A convolution of
stride 2 is a sum of kernels of two places, one for each phase of the source; its backward pass is one such kernel for
each phase of the result.

Reading and writing are sums over taps with coefficients (Op.MIX), the products are a convolution in which every place
of the kernel is met once (Op.CONVOLVE): nothing new for program.c.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch
from torch import Tensor

from ebmlife.sampling.native.steps import Convolution, Map, Op, Step
from ebmlife.sampling.native.taps import Taps, collected

FEWEST_CHANNELS = 48  # below, reading and writing cost as much as the products they save (measured at 32: equal)
FEWEST_FOR_FOUR = 192  # channels from which kernels of two places pay with four results at a time (at 128: equal)
_POINTS = (0, 1, -1, 2)  # a fifth, for four results of three places, was 5 % faster at twice the error
_BAND_BYTES = 1 << 20  # of what is read for one band of tiles, for 16 images: stays in the outer caches

Terms = dict[int, float]  # place: coefficient


@dataclass(frozen=True)
class Filter:
    """A convolution along one dimension, tile by tile."""

    step: int  # pixels of the source from one tile to the next
    reads: tuple[Terms, ...]  # for each product, what it reads of the source, from the tile's first pixel on
    kernels: tuple[Terms, ...]  # and of the kernel
    sums: tuple[int, ...]  # and the sum that it belongs to
    writes: tuple[Terms, ...]  # for each result of a tile, what it takes of the sums


def three_places(*, flipped: bool) -> Filter:
    """y[i] = sum over k = 0, 1, 2 of g[k] x[i + k - 1] (g[2 - k] if flipped), two results at a time."""
    reads, kernels, writes = _minimal([-1, 0, 1, 2], [2, 1, 0] if flipped else [0, 1, 2])
    return Filter(2, reads, kernels, (0, 1, 2, 3), writes)


def four_places_halving(*, results: int = 2) -> Filter:
    """y[i] = sum over k = 0..3 of g[k] x[2 i + k - 1], `results` at a time: both phases p of the source (k = p, p + 2)
    are kernels of two places, and their products go into the same sums."""
    phases = [_minimal([2 * i + p - 1 for i in range(results + 1)], [p, p + 2]) for p in (0, 1)]
    return Filter(
        step=2 * results,
        reads=tuple(reads for phase in phases for reads in phase[0]),
        kernels=tuple(kernel for phase in phases for kernel in phase[1]),
        sums=(*range(results + 1), *range(results + 1)),
        writes=phases[0][2],
    )


def four_places_doubling(*, results: int = 2) -> Filter:
    """The backward pass of that: x[2 a] = g[3] y[a - 1] + g[1] y[a], x[2 a + 1] = g[2] y[a] + g[0] y[a + 1], both for
    `results` places a at a time."""
    phases = [_minimal([i + r - 1 for i in range(results + 1)], [3 - r, 1 - r]) for r in (0, 1)]
    products = results + 1
    shifted = [{at + products: by for at, by in terms.items()} for terms in phases[1][2]]
    return Filter(
        step=results,
        reads=tuple(reads for phase in phases for reads in phase[0]),
        kernels=tuple(kernel for phase in phases for kernel in phase[1]),
        sums=tuple(range(2 * products)),
        writes=tuple(terms for both in zip(phases[0][2], shifted, strict=True) for terms in both),
    )


def _minimal(x: list[int], g: list[int]) -> tuple[tuple[Terms, ...], tuple[Terms, ...], tuple[Terms, ...]]:
    """y[i] = sum over k of g[k] x[i + k] with one product for each x: what they read, their kernels, and the results.

    Toom's and Cook's way of multiplying polynomials by their values at some points and at infinity, transposed: a
    result takes the powers of each point, a kernel is its polynomial's value there, and a product reads what vanishes
    at all other points.
    """
    points, results = _POINTS[: len(x) - 1], len(x) - len(g) + 1
    reads, kernels = [], []
    for point in points:
        others = [other for other in points if other != point]
        scale = math.prod(point - other for other in others)
        reads.append(_terms(x, np.poly(others)[::-1]))
        kernels.append(_terms(g, [point**k / scale for k in range(len(g))]))
    reads.append(_terms(x, np.poly(points)[::-1]))
    kernels.append({g[-1]: 1.0})
    writes = [_terms(range(len(x)), [point**i for point in points] + [i == results - 1]) for i in range(results)]
    return tuple(reads), tuple(kernels), tuple(writes)


def _terms(places: Sequence[int], coefficients: Iterable[float]) -> Terms:
    return {place: float(by) for place, by in zip(places, coefficients, strict=False) if by}


def accelerated(steps: list[Step], maps: dict[str, Map]) -> tuple[list[Step], dict[str, Map]]:
    """The steps with convolutions replaced where that pays, and all maps."""
    new: list[Step] = []
    maps = dict(maps)
    for number, step in enumerate(steps):
        one = _filter(step)
        if one is None or step.convolution is None:
            new.append(step)
            continue
        for band, parts in enumerate(_bands(step, step.convolution, one)):
            names = [f"{what} {band} of {number}" for what in ("read", "products")]
            reading, multiplying, writing = parts
            new += [
                replace(reading, target=names[0]),
                replace(multiplying, source=names[0], target=names[1]),
                replace(writing, source=names[1]),
            ]
            maps[names[0]] = Map(reading.pixels, reading.outputs)
            maps[names[1]] = Map(multiplying.pixels, multiplying.outputs, exact=True)
    return new, maps


def _filter(step: Step) -> Filter | None:
    conv = step.convolution
    if conv is None or min(step.inputs, step.outputs) < FEWEST_CHANNELS:
        return None
    if (conv.kernel, conv.stride, conv.padding) == ((3, 3), 1, 1):
        found = [three_places(flipped=conv.backward)]
    elif (conv.kernel, conv.stride, conv.padding) == ((4, 4), 2, 1):
        halving_or_doubling = four_places_doubling if conv.backward else four_places_halving
        many = min(step.inputs, step.outputs) >= FEWEST_FOR_FOUR
        found = [halving_or_doubling(results=results) for results in ((4, 2) if many else (2,))]
    else:
        return None
    return next((one for one in found if not any(side % one.step for side in conv.source)), None)


def _bands(step: Step, conv: Convolution, one: Filter) -> Iterator[tuple[Step, Step, Step]]:
    """Reading, products and writing for some rows of tiles at a time, so that what lies between stays in cache."""
    height, width = (side // one.step for side in conv.source)  # in tiles
    products = len(one.reads) ** 2
    rows = min(height, max(1, _BAND_BYTES // (64 * products * step.inputs * width)))
    transform = _transform(one, conv.kernel[0])
    for top in range(0, height, rows):
        y, x = np.meshgrid(np.arange(top, min(top + rows, height)), np.arange(width), indexing="ij")
        tiles = y.size
        sums = (max(one.sums) + 1) ** 2
        reading = Step(
            Op.MIX, step.source, "", products * tiles, step.inputs, step.inputs, taps=_reads(one, conv.source, y, x)
        )
        multiplying = Step(
            Op.CONVOLVE,
            "",
            "",
            sums * tiles,
            step.inputs,
            step.outputs,
            taps=_products(one, tiles),
            places=products,
            weight=step.weight,
            transform=transform,
        )
        first = top * len(one.writes) * width * len(one.writes)
        writing = replace(
            step,
            kind=Op.MIX,
            source="",
            first_pixel=step.first_pixel + first,
            pixels=tiles * len(one.writes) ** 2,
            inputs=step.outputs,
            taps=_writes(one, y - top, x, width),
            places=1,
            weight=None,
            convolution=None,
        )
        yield reading, multiplying, writing


def _reads(one: Filter, source: tuple[int, int], y: np.ndarray, x: np.ndarray) -> Taps:
    """For each tile and product, the pixels of the source and their coefficients; padding is left out.

    Tile by tile: its products read the same few pixels, which are then still in cache.
    """
    parts, products = [], len(one.reads) ** 2
    for at, (rows, columns) in enumerate(product(one.reads, repeat=2)):
        for (i, a), (j, b) in product(rows.items(), columns.items()):
            row, column = y * one.step + i, x * one.step + j
            inside = (row >= 0) & (row < source[0]) & (column >= 0) & (column < source[1])
            result = np.arange(y.size).reshape(y.shape) * products + at
            parts.append((result[inside], (row * source[1] + column)[inside], np.full(inside.sum(), a * b, np.float32)))
    return collected(parts, pixels=products * y.size)


def _products(one: Filter, tiles: int) -> Taps:
    """For each sum and tile, its products; the place in the kernel is the product's number.

    Sum by sum: its tiles share their weights, which are then still in cache.
    """
    sums = max(one.sums) + 1
    tile = np.arange(tiles)
    parts = []
    for at, (row, column) in enumerate(product(one.sums, repeat=2)):
        parts.append(((row * sums + column) * tiles + tile, tile * len(one.sums) ** 2 + at, np.full(tiles, at)))
    return collected(parts, pixels=sums**2 * tiles)


def _writes(one: Filter, y: np.ndarray, x: np.ndarray, width: int) -> Taps:
    """For each pixel of the band's result, the sums that it takes and their coefficients."""
    size, sums = len(one.writes), max(one.sums) + 1
    tile = np.arange(y.size).reshape(y.shape)
    parts = []
    for (i, rows), (j, columns) in product(enumerate(one.writes), repeat=2):
        result = (y * size + i) * width * size + x * size + j
        for (m, a), (n, b) in product(rows.items(), columns.items()):
            parts.append((result.ravel(), ((m * sums + n) * y.size + tile).ravel(), np.full(y.size, a * b, np.float32)))
    return collected(parts, pixels=y.size * size**2)


def _transform(one: Filter, places: int) -> Tensor:
    """What each product reads of the kernel, in both dimensions: (products, places * places)."""
    along = torch.zeros(len(one.kernels), places)
    for at, terms in enumerate(one.kernels):
        for place, coefficient in terms.items():
            along[at, place] = coefficient
    return torch.kron(along, along)
