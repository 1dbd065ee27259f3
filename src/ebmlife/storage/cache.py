"""A cache of tensors that take long to compute. Entries have checksums, and damaged ones are computed again."""

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


def tensors(name: str, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """Returns the tensors of this name, from the cache or from `compute`."""
    found = find(name)
    if found is None:
        found = compute()
        keep(name, found)
    return found


def find(name: str) -> dict[str, Tensor] | None:
    """Returns the cached tensors of this name; None if there are none, or if the file is damaged."""
    file = _file(name)
    if not file.is_file():
        return None
    try:
        with safe_open(file, "pt") as opened:
            held = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118 (it is not a dict)
            intact = (opened.metadata() or {}).get(_CHECKSUM) == _checksum(held)
    except (OSError, SafetensorError, ValueError, KeyError, RuntimeError):
        intact = False
    if not intact:
        note(f"{file} is damaged, or has no checksum; it is computed again")
        return None
    return held


def keep(name: str, held: Mapping[str, Tensor]) -> None:
    """Caches tensors. If the cache cannot be written, a note says so."""
    plain = {key: value.contiguous() for key, value in held.items()}
    try:
        with atomic_write(_file(name)) as unfinished:
            save_file(plain, unfinished, metadata={_CHECKSUM: _checksum(plain)})
    except BadInput as error:
        note(f"nothing was cached: {error}")


def _file(name: str) -> Path:
    return cache_folder() / f"{name}.safetensors"


def _checksum(held: Mapping[str, Tensor]) -> str:
    """Returns the SHA-256 of names, dtypes, shapes and values."""
    digest = hashlib.sha256()
    for key in sorted(held):
        value = held[key].detach().cpu().contiguous()
        digest.update(f"{key}/{value.dtype}/{tuple(value.shape)}/".encode())
        digest.update(value.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
