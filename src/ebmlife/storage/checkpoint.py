"""Checkpoints: tensors in safetensors, everything else in JSON, and checksums in a manifest. There is no pickle.

A checkpoint is a folder that is written atomically. If several ranks share a run, the folder is that of the first
one. It contains a shard of each other rank in the same format, as rank-1, rank-2 and so on. `history` names the
checkpoints of a run.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from ebmlife.errors import BadInput
from ebmlife.storage import regular
from ebmlife.storage.atomic import atomic_write, read_json
from ebmlife.storage.history import Damaged as Damaged  # callers use one module for both
from ebmlife.storage.history import abandon as abandon
from ebmlife.storage.history import choose as choose
from ebmlife.storage.history import damaged
from ebmlife.storage.history import newest_sound as newest_sound
from ebmlife.storage.history import path as path
from ebmlife.storage.history import prune as prune
from ebmlife.storage.history import set_aside as set_aside
from ebmlife.storage.history import updates as updates

FORMAT = 2  # of the manifest, which has its own checksum since 2
_READABLE = (1, FORMAT)
_TENSOR = "tensor:"  # marks, in the JSON, the name of a tensor in the safetensors file
_FILES = ("state.json", "tensors.safetensors")
_OWN = "manifest_sha256"
_FIELDS: dict[str, type] = {  # of a manifest; most are optional
    "format": int,
    "update": int,
    "ranks": int,
    "rank": int,
    "stage": int,
    "recipe_hash": str,
    "origin": str,
    "versions": dict,
    "machine": dict,
    "settings": dict,
    "summary": dict,
    "sha256": dict,
}


def save(folder: Path, state: dict[str, Any], *, about: dict[str, Any], ranks: int = 1) -> None:
    """Writes a checkpoint.

    Args:
        folder: The new checkpoint.
        state: Tensors and plain values, in dictionaries and lists.
        about: Further entries of the manifest.
        ranks: The number of processes that share the run. All but the first have written their shards already.

    Raises:
        BadInput: The checkpoint cannot be written.
    """
    with atomic_write(folder) as unfinished:
        unfinished.mkdir()
        tensors: dict[str, Tensor] = {}
        plain = _pack(state, "", tensors)
        save_file(tensors, unfinished / "tensors.safetensors")
        (unfinished / "state.json").write_text(json.dumps(plain))
        digests = {file.name: _digest(file) for file in sorted(unfinished.iterdir())}
        manifest = json.loads(json.dumps({"format": FORMAT, **about, "ranks": ranks, "sha256": digests}))
        manifest[_OWN] = _own_digest(manifest)
        (unfinished / "manifest.json").write_text(json.dumps(manifest, indent=2))
        for rank in range(1, ranks):
            _take_up(_unfinished_shard(folder, rank), shard(unfinished, rank))


def save_shard(folder: Path, state: dict[str, Any], *, rank: int) -> None:
    """Writes the shard of a rank beside the checkpoint `folder`, into which the first rank moves it."""
    save(_unfinished_shard(folder, rank), state, about={"rank": rank})


def shard(folder: Path, rank: int) -> Path:
    """Returns the shard of a rank in a checkpoint."""
    return folder / f"rank-{rank}"


def _unfinished_shard(folder: Path, rank: int) -> Path:
    return folder.with_name(f".{folder.name}.rank-{rank}.unfinished")


def _take_up(written: Path, place: Path) -> None:
    if not written.is_dir():
        raise BadInput(f"{written} does not exist; put the run in a folder that all machines share")
    written.rename(place)


def load(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reads a checkpoint.

    Returns:
        The state and the manifest.

    Raises:
        Damaged: A byte is missing or has changed.
    """
    manifest = verify(folder)
    try:
        tensors = load_file(folder / "tensors.safetensors")
        packed = read_json(folder / "state.json")
        state = _unpack(packed, tensors, "")
    except (BadInput, OSError, SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise damaged(folder, str(error)) from error
    if tensors or not isinstance(state, dict):
        raise damaged(
            folder, f"nothing refers to its tensor {min(tensors)}" if tensors else "its state is not a dictionary"
        )
    return state, manifest


def verify(folder: Path) -> dict[str, Any]:
    """Returns the manifest. Raises Damaged unless all checksums agree. Shards are verified separately."""
    manifest = read_manifest(folder)
    for name in _FILES:
        try:
            intact = _digest(folder / name) == manifest["sha256"].get(name)
        except (BadInput, OSError):
            intact = False
        if not intact:
            raise damaged(folder, f"{name} has changed since it was written")
    return manifest


def read_manifest(folder: Path) -> dict[str, Any]:
    """Returns the manifest of a checkpoint, without comparing the checksums of its files."""
    try:
        manifest = read_json(folder / "manifest.json")
    except BadInput as error:
        raise damaged(folder, "no readable manifest.json") from error
    if not isinstance(manifest, dict):
        raise damaged(folder, "manifest.json is not a dictionary")
    own = manifest.pop(_OWN, None)
    if (own is not None or manifest.get("format") == FORMAT) and own != _own_digest(manifest):
        raise damaged(folder, "manifest.json has changed since it was written")
    version = manifest.get("format")
    if version not in _READABLE:
        why = f"its format is {version!r:.40}, not one of {', '.join(map(str, _READABLE))}"
        newer = type(version) is int and version > FORMAT  # not damaged: it must not be set aside
        raise BadInput(f"checkpoint {folder} is from a newer ebmlife: {why}") if newer else damaged(folder, why)
    for name, kind in _FIELDS.items():
        if name in manifest and type(manifest[name]) is not kind:
            raise damaged(folder, f"{name} in manifest.json is {manifest[name]!r:.40}")
    if "sha256" not in manifest:
        raise damaged(folder, "manifest.json has no checksums")
    return manifest


def plain(folder: Path) -> dict[str, Any]:
    """Returns the values of a checkpoint without its tensors, and without comparing checksums."""
    state = read_json(folder / "state.json")
    if not isinstance(state, dict):
        raise damaged(folder, "its state is not a dictionary")
    return state


def tensor(folder: Path, name: str) -> Tensor | None:
    """Returns one tensor of a checkpoint, or None, without comparing checksums."""
    try:
        with safe_open(regular.check(folder / "tensors.safetensors"), "pt") as tensors:
            found: Tensor | None = tensors.get_tensor(name) if name in tensors.keys() else None  # noqa: SIM118
            return found
    except (BadInput, OSError, SafetensorError) as error:
        raise damaged(folder, "tensors.safetensors cannot be read") from error


def shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of a checkpoint's tensors, from the header of the file."""
    try:
        with safe_open(regular.check(folder / "tensors.safetensors"), "pt") as tensors:
            return {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    except (BadInput, OSError, SafetensorError) as error:
        raise damaged(folder, "tensors.safetensors cannot be read") from error


def _pack(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        # A contiguous copy: safetensors refuses views that share memory.
        tensors[name] = value.detach().cpu().contiguous().clone()
        return _TENSOR + name
    if isinstance(value, dict):
        return {str(key): _pack(item, f"{name}/{key}" if name else str(key), tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_pack(item, f"{name}/{i}", tensors) for i, item in enumerate(value)]
    return value


def _unpack(value: Any, tensors: dict[str, Tensor], name: str) -> Any:
    """Inverts `_pack`, and removes each tensor from `tensors`, where it must have its own name."""
    if isinstance(value, str) and value.startswith(_TENSOR):
        if value.removeprefix(_TENSOR) != name or name not in tensors:
            raise ValueError(f"its tensor {name} is missing")
        return tensors.pop(name)
    if isinstance(value, dict):
        return {key: _unpack(item, tensors, f"{name}/{key}" if name else key) for key, item in value.items()}
    if isinstance(value, list):
        return [_unpack(item, tensors, f"{name}/{i}") for i, item in enumerate(value)]
    return value


def _digest(file: Path) -> str:
    with regular.opened(file) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _own_digest(manifest: dict[str, Any]) -> str:
    """Returns the checksum of a manifest that has none yet."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
