"""Weights in the order in which the compiled program reads them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Packed:
    """Weights as the program reads them."""

    memory: Tensor
    tiles: NDArray[np.int32] | None  # outputs of each tile, 0 after the last; None: weights as they are
    transform: Tensor | None  # of the places of their kernel


def split(outputs: int, sizes: Sequence[int]) -> list[int]:
    """Output channels in tiles of the sizes that there are: few tiles, of about the same size; an odd one last."""
    last = [] if outputs % 2 == 0 else [3 if outputs > 1 else 1]
    rest = outputs - sum(last)
    even = [size for size in sizes if size % 2 == 0]
    best: list[list[int]] = [[]]
    for n in range(2, rest + 1, 2):
        found = [[*best[(n - size) // 2], size] for size in even if size <= n]
        best.append(min(found, key=lambda tiles: (len(tiles), max(tiles))))
    return [*sorted(best[rest // 2], reverse=True), *last]


def tiled(weight: Tensor, packed: Packed) -> Tensor:
    """(outputs, inputs, places) -> [tile][place][input][output of the tile], flat.

    In bfloat16 two inputs are one number of 32 bits, [tile][place][pair of inputs][output of the tile]. Tiles of one
    size are permuted together.
    """
    assert packed.tiles is not None
    parts, first = [], 0
    for size, group in groupby(packed.tiles[:-1].tolist()):
        last = first + size * len(list(group))
        part = weight[first:last].reshape(-1, size, *weight.shape[1:]).permute(0, 3, 2, 1)
        if packed.transform is not None:
            part = _transformed(part, packed.transform)
        parts.append(_paired(part) if packed.memory.dtype == torch.int32 else part.flatten())
        first = last
    return torch.cat(parts)


def _transformed(weight: Tensor, transform: Tensor) -> Tensor:
    """(..., places, inputs, outputs) -> (..., products, inputs, outputs)."""
    return (transform @ weight.flatten(-2)).view(*weight.shape[:-3], len(transform), *weight.shape[-2:])


def _paired(weight: Tensor) -> Tensor:
    """(..., inputs, outputs) in float32 -> (..., pairs of inputs, outputs), flat, each two numbers in bfloat16."""
    *places, inputs, outputs = weight.shape
    even = F.pad(weight, (0, 0, 0, inputs % 2)).to(torch.bfloat16).reshape(*places, (inputs + 1) // 2, 2, outputs)
    return even.transpose(-1, -2).flatten().view(torch.int32)
