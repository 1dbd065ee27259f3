"""Everything that a run is, on disk: tensors in safetensors, the rest in JSON, checksums in a manifest, no pickle.

A checkpoint is a folder that appears whole or not at all. Where several ranks share a run, the first one's is the
folder itself; what the others alone know lies in it as rank-1, rank-2 and so on, each of the same form.
"""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from ebmlife.errors import BadInput
from ebmlife.storage import regular
from ebmlife.storage.atomic import atomic_write, discard, read_json

FORMAT = 2  # of the manifest: since 2 it has a checksum of its own
_READABLE = (1, FORMAT)
_TENSOR = "tensor:"  # marks, in the JSON, the name of a tensor in the safetensors file
_FILES = ("state.json", "tensors.safetensors")
_OWN = "manifest_sha256"
_NAME = re.compile("[0-9]{9,18}")
_FIELDS: dict[str, type] = {  # of a manifest, where it has them
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


class Damaged(BadInput):
    """A checkpoint that is not what was written."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(what + advice)
        self.what = what


def save(folder: Path, state: dict[str, Any], *, about: dict[str, Any], ranks: int = 1) -> None:
    """Writes `state` (a tree of tensors and plain values) as the checkpoint `folder`; others stay as they are.

    With several `ranks`, those after the first have written their shards already.
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
    manifest = verify(folder)
    try:
        tensors = load_file(folder / "tensors.safetensors")
        packed = read_json(folder / "state.json")
        state = _unpack(packed, tensors, "")
    except (BadInput, OSError, SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise _damaged(folder, str(error)) from error
    if tensors or not isinstance(state, dict):
        raise _damaged(folder, f"nothing refers to its tensor {min(tensors)}" if tensors else "its state is no state")
    return state, manifest


def verify(folder: Path) -> dict[str, Any]:
    """The manifest, where all files are what was written; else BadInput. Shards are folders of their own."""
    manifest = read_manifest(folder)
    for name in _FILES:
        try:
            whole_file = _digest(folder / name) == manifest["sha256"].get(name)
        except (BadInput, OSError):
            whole_file = False
        if not whole_file:
            raise _damaged(folder, f"{name} is not what was written")
    return manifest


def read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = read_json(folder / "manifest.json")
    except BadInput as error:
        raise _damaged(folder, "no readable manifest.json") from error
    if not isinstance(manifest, dict):
        raise _damaged(folder, "manifest.json holds no manifest")
    own = manifest.pop(_OWN, None)
    if (own is not None or manifest.get("format") == FORMAT) and own != _own_digest(manifest):
        raise _damaged(folder, "manifest.json is not what was written")
    of = manifest.get("format")
    if of not in _READABLE:
        why = f"its format is {of!r:.40}, not one of {', '.join(map(str, _READABLE))}"
        newer = type(of) is int and of > FORMAT  # not damaged: it is not to be set aside
        raise BadInput(f"checkpoint {folder} is of a newer ebmlife: {why}") if newer else _damaged(folder, why)
    for name, kind in _FIELDS.items():
        if name in manifest and type(manifest[name]) is not kind:
            raise _damaged(folder, f"{name} in manifest.json is {manifest[name]!r:.40}")
    if "sha256" not in manifest:
        raise _damaged(folder, "manifest.json has no checksums")
    return manifest


def plain(folder: Path) -> dict[str, Any]:
    """A checkpoint's values without its tensors, for those who only look: checksums are not compared."""
    state = read_json(folder / "state.json")
    if not isinstance(state, dict):
        raise _damaged(folder, "its state is no state")
    return state


def tensor(folder: Path, name: str) -> Tensor | None:
    """One of a checkpoint's tensors, or None; checksums are not compared."""
    try:
        with safe_open(regular.check(folder / "tensors.safetensors"), "pt") as tensors:
            found: Tensor | None = tensors.get_tensor(name) if name in tensors.keys() else None  # noqa: SIM118
            return found
    except (BadInput, OSError, SafetensorError) as error:
        raise _damaged(folder, "tensors.safetensors cannot be read") from error


def shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Of a checkpoint's tensors, by name, from the file's header alone."""
    try:
        with safe_open(regular.check(folder / "tensors.safetensors"), "pt") as tensors:
            return {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    except (BadInput, OSError, SafetensorError) as error:
        raise _damaged(folder, "tensors.safetensors cannot be read") from error


def path(run: Path, update: int) -> Path:
    return run / "checkpoints" / f"{update:09d}"


def updates(run: Path) -> list[int]:
    """The updates at which this run has checkpoints, in order."""
    names = [entry.name for entry in (run / "checkpoints").glob("*")]
    return sorted(int(name) for name in names if _NAME.fullmatch(name))


def choose(run: Path, wanted: int | None) -> int | None:
    """The update of the checkpoint that is wanted, or of the newest; None where there is none yet."""
    available = updates(run)
    if wanted is not None and wanted not in available:
        there = f"there are {', '.join(map(str, available))}" if available else "there is none yet"
        raise BadInput(f"{run} has no checkpoint at update {wanted}; {there}")
    return wanted if wanted is not None else max(available, default=None)


def newest_sound(run: Path, check: Callable[[Path], object], say: Callable[[str], None]) -> int | None:
    """The update of the newest checkpoint that `check` does not call damaged; None where there is none at all.

    Damaged ones newer than that are set aside, and `say` is told. If all are damaged, they stay and it is a BadInput.
    """
    damaged: dict[int, Damaged] = {}
    for update in reversed(updates(run)):
        try:
            check(path(run, update))
        except Damaged as error:
            damaged[update] = error
            continue
        for bad, found in damaged.items():
            say(
                f"{found.what}; it is kept as {set_aside(path(run, bad), 'damaged').name}, and {update} is used instead"
            )
        return update
    for found in damaged.values():
        raise BadInput(f"{found.what}, and there is no sound one before it; begin again in another folder") from found
    return None


def abandon(run: Path, *, after: int) -> None:
    """Sets aside the checkpoints beyond an update from which the run continues; nothing is deleted."""
    for update in updates(run):
        if update > after:
            set_aside(path(run, update), "abandoned")


def set_aside(folder: Path, why: str) -> Path:
    """Renames a checkpoint so that it no longer counts as one: 000000004.damaged, or .damaged-2 if that is taken."""
    names = (folder.with_name(f"{folder.name}.{why}{'' if i == 1 else f'-{i}'}") for i in range(1, 1_000_000))
    aside = next(name for name in names if not name.exists())
    folder.rename(aside)
    return aside


def prune(run: Path, *, keep: int, keep_every: int | None) -> None:
    for update in updates(run)[:-keep]:
        if keep_every is None or update % keep_every:
            discard(path(run, update))


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


def _unpack(value: Any, tensors: dict[str, Tensor], name: str) -> Any:
    """The inverse of `_pack`, which takes each tensor from `tensors`, under its own name only."""
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
    """Of a manifest without this digest."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _damaged(folder: Path, why: str) -> "Damaged":
    return Damaged(f"checkpoint {folder} is damaged: {why}", _others(folder))


def _others(folder: Path) -> str:
    if not _NAME.fullmatch(folder.name):
        return ""
    older = [update for update in updates(folder.parent.parent) if update < int(folder.name)]
    if not older:
        return ""
    run = quote(str(folder.parent.parent))
    return f"; the one before it is at update {older[-1]}: add --update {older[-1]}, or type: ebmlife resume {run}"
