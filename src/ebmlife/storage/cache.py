"""Tensors that take long to make, kept in the cache with a checksum: what is damaged there is made again."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ebmlife.errors import BadInput, note
from ebmlife.storage.atomic import atomic_write, cache_folder

_CHECKSUM = "sha256"


def tensors(name: str, make: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """What `make` gave the first time that something of this name was asked for."""
    held = find(name)
    if held is None:
        held = make()
        keep(name, held)
    return held


def find(name: str) -> dict[str, Tensor] | None:
    """What is kept under that name; None where nothing is, or where the file is not as it was written."""
    file = _file(name)
    if not file.is_file():
        return None
    try:
        with safe_open(file, "pt") as opened:
            held = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118 (it is no dict)
            intact = (opened.metadata() or {}).get(_CHECKSUM) == _checksum(held)
    except (OSError, SafetensorError, ValueError, KeyError, RuntimeError):
        intact = False
    if not intact:
        note(f"{file} is damaged, or older than its checksum; it is made again")
        return None
    return held


def keep(name: str, held: Mapping[str, Tensor]) -> None:
    """Where the cache cannot be written, nothing is kept: the work is done, and can be done again."""
    plain = {key: value.contiguous() for key, value in held.items()}
    try:
        with atomic_write(_file(name)) as unfinished:
            save_file(plain, unfinished, metadata={_CHECKSUM: _checksum(plain)})
    except BadInput as error:
        note(f"nothing is kept in the cache: {error}")


def _file(name: str) -> Path:
    return cache_folder() / f"{name}.safetensors"


def _checksum(held: Mapping[str, Tensor]) -> str:
    """Of names, types, shapes and values."""
    digest = hashlib.sha256()
    for key in sorted(held):
        value = held[key].detach().cpu().contiguous()
        digest.update(f"{key}/{value.dtype}/{tuple(value.shape)}/".encode())
        digest.update(value.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
