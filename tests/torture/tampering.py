"""Checkpoints with something wrong inside and every checksum right: what a careful attacker, or a bug, could write.

for name, change in tampered(folder):   # hundreds; the same ones each time
    copy = shutil.copytree(folder, ...)
    change(copy)                        # loading `copy` must be a BadInput, or be no different
"""

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

Change = Callable[[Path], None]
_ODD: tuple[Any, ...] = (None, "x", [], {}, -1, 1.5, True, 2**70, [[]], "tensor:nowhere", float("nan"))
_MISSING, _DEEP = object(), object()  # instead of a value: none at all; lists in lists


@dataclass
class Contents:
    """A checkpoint as it lies on disk."""

    manifest: dict[str, Any]
    state: Any
    tensors: dict[str, Tensor]

    @classmethod
    def read(cls, folder: Path) -> "Contents":
        manifest, state = (json.loads((folder / name).read_text()) for name in ("manifest.json", "state.json"))
        return cls(manifest, state, load_file(folder / "tensors.safetensors"))

    def write(self, folder: Path) -> None:
        """With checksums that are right for what is there."""
        save_file(self.tensors, folder / "tensors.safetensors")
        text = json.dumps(self.state).replace('"<deep>"', "[" * 5000 + "]" * 5000)
        (folder / "state.json").write_text(text)
        digests = self.manifest.get("sha256")
        if isinstance(digests, dict):
            digests |= {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in digests}
        own = {name: value for name, value in self.manifest.items() if name != "manifest_sha256"}
        if "manifest_sha256" in self.manifest:
            own["manifest_sha256"] = hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()
        (folder / "manifest.json").write_text(json.dumps(own).replace('"<deep>"', "[" * 5000 + "]" * 5000))


def tampered(folder: Path) -> Iterator[tuple[str, Change]]:
    """All changes of a checkpoint, by name: to each tensor, to each value of its state, and to its manifest."""
    known = Contents.read(folder)
    for name, tensor in known.tensors.items():
        for how, other in _other_tensors(tensor):
            yield f"tensor {name}: {how}", _changing(lambda c, n=name, o=other: c.tensors.__setitem__(n, o))
        yield f"tensor {name}: not in the file", _changing(lambda c, n=name: c.tensors.pop(n))
        yield f"tensor {name}: nowhere", _changing(lambda c, n=name: (c.tensors.pop(n), _put(c.state, n, _MISSING)))
    yield "a tensor more", _changing(lambda c: c.tensors.__setitem__("more", torch.zeros(2)))
    for path in _paths(known.state):
        for odd in (*_ODD, _MISSING, _DEEP):
            yield f"state {path}: {_say(odd)}", _changing(lambda c, p=path, o=odd: _put(c.state, p, o))
    for odd in (None, [], {}, 3, "x"):
        yield f"state: {odd!r}", _changing(lambda c, o=odd: setattr(c, "state", o))
    for path in ("format", "update", "ranks", "sha256", "versions", "machine", "recipe_hash", "manifest_sha256"):
        for odd in (*_ODD, 0, 2, _MISSING, _DEEP):
            yield f"manifest {path}: {_say(odd)}", _changing(lambda c, p=path, o=odd: _put(c.manifest, p, o))


def tamper(folder: Path, dice: random.Random) -> str:
    """Makes one of the changes and returns its name: as often to a tensor as to a value of the state or the manifest.

    Other values of the recipe can be right as well, and are left alone.
    """
    kind = dice.choice(("tensor", "state", "manifest"))
    changes = [
        case for case in tampered(folder) if case[0].startswith(kind) and not case[0].startswith("state recipe/")
    ]
    name, change = dice.choice(changes)
    change(folder)
    return name


def refresh(folder: Path) -> None:
    """Makes the checksums right for what is there."""
    Contents.read(folder).write(folder)


def _other_tensors(tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int8, torch.bool):
        yield str(dtype), tensor.to(dtype)
    yield "one more dimension", tensor[None].clone()
    yield "flat, and one longer", torch.cat([tensor.flatten(), tensor.flatten()[:1]])
    yield "empty", tensor.flatten()[:0].clone()
    if tensor.is_floating_point():
        for value in (float("nan"), float("inf"), float("-inf")):
            bad = tensor.clone()
            bad.flatten()[-1:] = value
            yield str(value), bad
    elif tensor.dtype == torch.int64:
        yield "negative", tensor - 2**40


def _changing(alter: Callable[[Contents], object]) -> Change:
    def change(folder: Path) -> None:
        found = Contents.read(folder)
        alter(found)
        found.write(folder)

    return change


def _paths(value: Any, path: str = "") -> Iterator[str]:
    """Of all values that are in dictionaries, inner ones and outer ones."""
    for key, item in value.items() if isinstance(value, dict) else ():
        inner = f"{path}/{key}" if path else key
        yield inner
        yield from _paths(item, inner)


def _put(tree: Any, path: str, value: Any) -> None:
    """Tensors' names are their paths; keys may have slashes, so the longest key that fits is taken."""
    for key in sorted(tree, key=len, reverse=True):
        if path == key:
            if value is _MISSING:
                del tree[key]
            else:
                tree[key] = "<deep>" if value is _DEEP else value
            return
        if path.startswith(f"{key}/"):
            _put(tree[key], path[len(key) + 1 :], value)
            return
    if value is not _MISSING:
        tree[path] = "<deep>" if value is _DEEP else value


def _say(value: Any) -> str:
    return {id(_MISSING): "missing", id(_DEEP): "nested deeply"}.get(id(value), repr(value))
