"""Which precision is faster here, measured once and remembered in the cache."""

import hashlib
import json
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ebmlife.errors import BadInput, note
from ebmlife.storage.atomic import atomic_write, cache_folder, read_json

_ROUNDS = 3


def fastest(ways: Mapping[str, Callable[[Tensor], Tensor]], net: nn.Module, x: Tensor) -> str:
    """Returns the name of the fastest of several ways to the gradient of a network, for batches of the shape of x.

    The choice depends on the network's layers, the shape of x, the number of threads and the machine. It is measured
    once (a few gradients) and kept in the cache, so that later processes choose the same.
    """
    file = cache_folder() / "precision" / f"{_key(net, x)}.json"
    found = _read(file)
    if found in ways:
        return found
    seconds = {name: _seconds(way, x) for name, way in ways.items()}
    chosen = min(seconds, key=seconds.__getitem__)
    ratio = max(seconds.values()) / seconds[chosen]
    note(f"precision auto: {chosen} for batches of shape {tuple(x.shape)}, {ratio:.1f} times as fast as the other")
    with suppress(BadInput), atomic_write(file) as unfinished:  # without a cache it is measured in each process
        unfinished.write_text(json.dumps({"precision": chosen, "seconds": seconds}))
    return chosen


def _seconds(way: Callable[[Tensor], Tensor], x: Tensor) -> float:
    way(x)  # compiles, packs weights
    best = float("inf")
    for _ in range(_ROUNDS):
        begin = time.perf_counter()
        way(x)
        best = min(best, time.perf_counter() - begin)
    return best


def _key(net: nn.Module, x: Tensor) -> str:
    layers = [(name, tuple(value.shape)) for name, value in net.state_dict().items()]
    names = [type(part).__qualname__ for part in net.modules()]
    about: list[Any] = [layers, names, tuple(x.shape), str(x.device), torch.get_num_threads(), torch.__version__]
    about += [platform.processor(), torch.backends.cpu.get_cpu_capability()]
    return hashlib.sha256(repr(about).encode()).hexdigest()[:24]


def _read(file: Path) -> str:
    with suppress(BadInput):
        found = read_json(file) if file.is_file() else None
        if isinstance(found, dict):
            return str(found.get("precision"))
    return ""
