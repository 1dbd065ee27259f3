"""Writes samples to a file or folder, in the format of its suffix, atomically and in bounded memory."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from ebmlife.errors import BadInput
from ebmlife.plots import pictures
from ebmlife.storage.atomic import atomic_write, can_be_made

LARGEST_GRID = 10_000  # images: a grid is the only output that is held in memory


def write(path: Path, states: Iterable[Tensor], *, n: int, shape: tuple[int, ...]) -> None:
    """Writes states batch by batch.

    Args:
        path: A .png file gets a grid, .npy and .safetensors files get an array (n, *shape), and a path without a suffix
            becomes a folder of PNG files.
        states: Batches of states, n in all.
        n: The number of states.
        shape: The shape of one state.
    """
    check(path, n=n, shape=shape)
    with atomic_write(path) as unfinished:
        _WRITERS[path.suffix](unfinished, states, (n, *shape))


def check(path: Path, *, n: int, shape: tuple[int, ...]) -> None:
    """Raises BadInput for a path to which such states cannot be written."""
    can_be_made(path.parent)
    if path.suffix not in _WRITERS:
        raise BadInput(f"--out {path} must end in .png, .npy or .safetensors, or have no suffix (a folder of images)")
    if path.suffix == ".png" and n > LARGEST_GRID:
        raise BadInput(f"--out {path}: a grid holds at most {LARGEST_GRID} images, not {n}; use .npy or a folder")
    if path.suffix == "" and len(shape) != 3:
        raise BadInput(f"--out {path}: states of shape {shape} are not images; use .npy or .safetensors")
    if path.is_dir() and (path.suffix or any(path.iterdir())):
        raise BadInput(f"--out {path} is a folder that exists already; choose another name")
    if path.suffix == "" and path.is_file():
        raise BadInput(
            f"--out {path} is a file, and a path without a suffix is a folder of images; choose another name"
        )


def _grid(path: Path, states: Iterable[Tensor], shape: tuple[int, ...]) -> None:
    pictures.draw(torch.cat([batch.cpu() for batch in states])).save(path, format="PNG")


def _npy(path: Path, states: Iterable[Tensor], shape: tuple[int, ...]) -> None:
    with path.open("wb") as stream:
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, header)
        _append(stream, states)


def _safetensors(path: Path, states: Iterable[Tensor], shape: tuple[int, ...]) -> None:
    """Writes header length, header and data by hand, because the library writes only tensors in memory."""
    size = 4 * int(np.prod(shape))
    header = json.dumps({"images": {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}).encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as stream:
        stream.write(len(header).to_bytes(8, "little") + header)
        _append(stream, states)


def _append(stream: BinaryIO, states: Iterable[Tensor]) -> None:
    for batch in states:
        stream.write(batch.cpu().numpy().astype("<f4").tobytes())


def _folder(path: Path, states: Iterable[Tensor], shape: tuple[int, ...]) -> None:
    path.mkdir(parents=True, exist_ok=True)
    done = 0
    for batch in states:
        for x in batch:
            pictures.image(x).save(path / f"{done:06d}.png")
            done += 1


_WRITERS = {".png": _grid, ".npy": _npy, ".safetensors": _safetensors, "": _folder}
