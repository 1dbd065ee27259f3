"""The conditions that affect the bits of a run besides its recipe: threads, kernels, processor, versions."""

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from ebmlife.recipes.schema import Recipe
from ebmlife.sampling.fast import has_bf16
from ebmlife.sampling.native.library import library

_FEATURES = ("avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_bf16", "amx_tile", "asimd", "sve", "bf16")


def versions() -> dict[str, str]:
    """Returns the versions of ebmlife, PyTorch, NumPy and Python."""
    return {name: version(name) for name in ("ebmlife", "torch", "numpy")} | {"python": platform.python_version()}


def describe(recipe: Recipe, device: torch.device) -> dict[str, Any]:
    """Returns a description of this machine and process for the manifest of a checkpoint."""
    name, features = processor()
    return {
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "walks by": _path(recipe, device),
        "processor": name,
        "processor features": sorted(features),
        "PyTorch kernels for": torch.backends.cpu.get_cpu_capability(),
    }


def changes(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """Describes, in one line, how this process differs from the one that saved a checkpoint; None if it does not."""
    names = [name for name in now if before.get(name, now[name]) != now[name]]
    if not names:
        return None
    named = "; ".join(f"{name} {_text(before[name])} -> {_text(now[name])}" for name in names)
    return f"saved under other conditions ({named}): the run continues, but its bits will differ in rounding"


def _path(recipe: Recipe, device: torch.device) -> str:
    precision = getattr(recipe.langevin, "precision", "f32")
    chosen = {"auto": "auto" if has_bf16(device) else "f32"}.get(precision, precision)
    compiled = device.type == "cpu" and library() is not None
    return f"{'compiled program' if compiled else 'PyTorch'}, {chosen}"


def processor() -> tuple[str, set[str]]:
    """Returns the name of the processor, and those of its features that affect results, if the system lists them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine(), set()
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in reversed(lines))}
    flags = fields.get("flags", fields.get("Features", "")).split()
    return fields.get("model name", platform.machine()), {*flags} & {*_FEATURES}


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
