"""Everything that a run is, on disk: tensors in safetensors, the rest in JSON, checksums in a manifest, no pickle.

A checkpoint is a folder that appears whole or not at all: it is written under a temporary name, flushed, and renamed.
"""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ebmlife.errors import BadInput

FORMAT = 1
_TENSOR = "tensor:"  # marks, in the JSON, the name of a tensor in the safetensors file


def save(folder: Path, state: dict[str, Any], *, about: dict[str, Any]) -> None:
    """Writes `state` (a tree of tensors and plain values) as the checkpoint `folder`."""
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        _write(unfinished, state, about)
        unfinished.rename(folder)
        _flush(folder.parent)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise BadInput(f"cannot write checkpoint {folder}: {_reason(error)}; earlier checkpoints are intact") from error


def _write(folder: Path, state: dict[str, Any], about: dict[str, Any]) -> None:
    tensors: dict[str, Tensor] = {}
    plain = _pack(state, "", tensors)
    save_file(tensors, folder / "tensors.safetensors")
    (folder / "state.json").write_text(json.dumps(plain))
    names = ("tensors.safetensors", "state.json")
    manifest = {"format": FORMAT, **about, "sha256": {name: _digest(folder / name) for name in names}}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2))
    for name in (*names, "manifest.json"):
        _flush(folder / name)
    _flush(folder)


def load(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """(state, manifest), or BadInput if a byte is missing or changed."""
    manifest = read_manifest(folder)
    for name, digest in manifest["sha256"].items():
        if not (folder / name).is_file() or _digest(folder / name) != digest:
            raise BadInput(f"checkpoint {folder} is damaged: {name} is not what was written{_others(folder)}")
    tensors = load_file(folder / "tensors.safetensors")
    return _unpack(json.loads((folder / "state.json").read_text()), tensors), manifest


def read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    except (OSError, ValueError) as error:
        raise BadInput(f"checkpoint {folder} is damaged: no readable manifest.json{_others(folder)}") from error
    if manifest.get("format") != FORMAT:
        raise BadInput(f"checkpoint {folder} has format {manifest.get('format')}, this ebmlife reads {FORMAT}")
    return manifest


def path(run: Path, update: int) -> Path:
    return run / "checkpoints" / f"{update:09d}"


def updates(run: Path) -> list[int]:
    """The updates at which this run has checkpoints, in order."""
    return sorted(int(entry.name) for entry in (run / "checkpoints").glob("*") if entry.name.isdigit())


def abandon(run: Path, *, after: int) -> None:
    """Sets aside the checkpoints beyond an update from which the run goes on anew; nothing is deleted."""
    for update in updates(run):
        if update > after:
            folder = path(run, update)
            shutil.rmtree(folder.with_suffix(".abandoned"), ignore_errors=True)
            folder.rename(folder.with_suffix(".abandoned"))


def prune(run: Path, *, keep: int, keep_every: int | None) -> None:
    for update in updates(run)[:-keep]:
        if keep_every is None or update % keep_every:
            shutil.rmtree(path(run, update))


def _pack(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        # Own, contiguous memory: safetensors refuses views that share it.
        tensors[name] = value.detach().cpu().contiguous().clone()
        return _TENSOR + name
    if isinstance(value, dict):
        return {str(key): _pack(item, f"{name}/{key}" if name else str(key), tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_pack(item, f"{name}/{i}", tensors) for i, item in enumerate(value)]
    return value


def _unpack(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, str) and value.startswith(_TENSOR):
        return tensors[value.removeprefix(_TENSOR)]
    if isinstance(value, dict):
        return {key: _unpack(item, tensors) for key, item in value.items()}
    if isinstance(value, list):
        return [_unpack(item, tensors) for item in value]
    return value


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _flush(place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _others(folder: Path) -> str:
    older = [u for u in updates(folder.parent.parent) if u < int(folder.name)] if folder.name.isdigit() else []
    return f"; the one before it is at update {older[-1]}: add --from-update {older[-1]}" if older else ""


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
