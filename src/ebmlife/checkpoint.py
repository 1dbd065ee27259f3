"""Everything that a run is, on disk: tensors in safetensors, the rest in JSON, checksums in a manifest, no pickle.

A checkpoint is a folder that appears whole or not at all. Where several ranks share a run, the first one's is the
folder itself; what the others alone know lies in it as rank-1, rank-2 and so on, each of the same form.
"""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from ebmlife.errors import BadInput
from ebmlife.files import whole

FORMAT = 1
_TENSOR = "tensor:"  # marks, in the JSON, the name of a tensor in the safetensors file


def save(folder: Path, state: dict[str, Any], *, about: dict[str, Any], ranks: int = 1) -> None:
    """Writes `state` (a tree of tensors and plain values) as the checkpoint `folder`; others stay as they are.

    With several `ranks`, those after the first have written their shards already.
    """
    with whole(folder) as unfinished:
        unfinished.mkdir()
        tensors: dict[str, Tensor] = {}
        plain = _pack(state, "", tensors)
        save_file(tensors, unfinished / "tensors.safetensors")
        (unfinished / "state.json").write_text(json.dumps(plain))
        digests = {file.name: _digest(file) for file in sorted(unfinished.iterdir())}
        manifest = {"format": FORMAT, **about, "ranks": ranks, "sha256": digests}
        (unfinished / "manifest.json").write_text(json.dumps(manifest, indent=2))
        for rank in range(1, ranks):
            _take_up(_unfinished_shard(folder, rank), shard(unfinished, rank))


def save_shard(folder: Path, state: dict[str, Any], *, rank: int) -> None:
    """Writes a rank's shard beside the checkpoint `folder`, where the first rank takes it up."""
    save(_unfinished_shard(folder, rank), state, about={"rank": rank})


def shard(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}"


def _unfinished_shard(folder: Path, rank: int) -> Path:
    return folder.with_name(f".{folder.name}.rank-{rank}.unfinished")


def _take_up(written: Path, place: Path) -> None:
    if not written.is_dir():
        raise BadInput(f"{written} is not there; the machines of a run need a folder for it that all of them see")
    written.rename(place)


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
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT or "sha256" not in manifest:
        raise BadInput(f"checkpoint {folder} is damaged, or not of format {FORMAT}, which this ebmlife reads")
    return manifest


def path(run: Path, update: int) -> Path:
    return run / "checkpoints" / f"{update:09d}"


def updates(run: Path) -> list[int]:
    """The updates at which this run has checkpoints, in order."""
    return sorted(int(entry.name) for entry in (run / "checkpoints").glob("*") if entry.name.isdigit())


def choose(run: Path, wanted: int | None) -> int | None:
    """The update of the checkpoint that is wanted, or of the newest; None where there is none yet."""
    available = updates(run)
    if wanted is not None and wanted not in available:
        there = f"there are {', '.join(map(str, available))}" if available else "there is none yet"
        raise BadInput(f"{run} has no checkpoint at update {wanted}; {there}")
    return wanted if wanted is not None else max(available, default=None)


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


def _others(folder: Path) -> str:
    older = [u for u in updates(folder.parent.parent) if u < int(folder.name)] if folder.name.isdigit() else []
    if not older:
        return ""
    return f"; the one before it can be used: resume --from-update {older[-1]}, sample --update {older[-1]}"
