"""Samples to a file or folder, by the ending of its name, in bounded memory and whole or not at all."""

import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ebmlife import pictures
from ebmlife.errors import BadInput

LARGEST_GRID = 10_000  # images: the one output that must be held whole


def write(path: Path, states: Iterable[Tensor], *, n: int, shape: tuple[int, ...]) -> None:
    """n states, batch by batch: .png a grid, .npy or .safetensors an array (n, *shape), no ending a folder of PNGs."""
    writers = {".png": _grid, ".npy": _npy, ".safetensors": _safetensors, "": _folder}
    if path.suffix not in writers:
        raise BadInput(f"--out {path}: the ending must be .png, .npy, .safetensors or none (a folder of images)")
    if path.suffix == ".png" and n > LARGEST_GRID:
        raise BadInput(f"--out {path}: a grid holds at most {LARGEST_GRID} images, not {n}; use .npy or a folder")
    if path.suffix == "" and len(shape) != 3:
        raise BadInput(f"--out {path}: states of shape {shape} are not images; use .npy or .safetensors")
    if path.is_dir() and (path.suffix or any(path.iterdir())):
        raise BadInput(f"--out {path} is a folder that exists already; choose another name")
    with _whole(path) as unfinished:
        writers[path.suffix](unfinished, states, (n, *shape))


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield unfinished
        unfinished.rename(path)
    finally:
        if unfinished.is_dir():
            shutil.rmtree(unfinished)
        else:
            unfinished.unlink(missing_ok=True)


def _grid(path: Path, states: Iterable[Tensor], shape: tuple[int, ...]) -> None:
    pictures.save(path, torch.cat([batch.cpu() for batch in states]))


def _npy(path: Path, states: Iterable[Tensor], shape: tuple[int, ...]) -> None:
    array = np.lib.format.open_memmap(path, "w+", dtype=np.float32, shape=shape)
    done = 0
    for batch in states:
        array[done : done + len(batch)] = batch.cpu().numpy()
        done += len(batch)
    array.flush()


def _safetensors(path: Path, states: Iterable[Tensor], shape: tuple[int, ...]) -> None:
    """By hand, as the library writes only what is in memory: header length, header, data."""
    size = 4 * int(np.prod(shape))
    header = json.dumps({"images": {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}).encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as stream:
        stream.write(len(header).to_bytes(8, "little") + header)
        for batch in states:
            stream.write(batch.cpu().numpy().astype("<f4").tobytes())


def _folder(path: Path, states: Iterable[Tensor], shape: tuple[int, ...]) -> None:
    path.mkdir(parents=True, exist_ok=True)
    done = 0
    for batch in states:
        for x in batch:
            pictures.image(x).save(path / f"{done:06d}.png")
            done += 1
