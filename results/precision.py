"""Compares chains in float32 and in bfloat16, with the same starts and the same noise.

make results-precision        # prints the numbers of docs/results/speed.md

Without bf16 hardware, PyTorch emulates its products at a hundredth of their speed. Here they are computed in float32
from the same bfloat16 numbers and rounded to bfloat16, as bf16 hardware does, which also sums in float32.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from scipy.stats import ks_2samp
from torch.nn.functional import conv2d, cosine_similarity, linear
from torch.overrides import TorchFunctionMode

from ebmlife import langevin, load, nets, prepare, seeded
from ebmlife.runs.model import Model
from ebmlife.sampling.energy import gradient
from ebmlife.sampling.fast import has_bf16
from ebmlife.sampling.rng import generator

CHAINS, STEPS = 512, 1000


class SummedInFloat32(TorchFunctionMode):
    """Computes products of bfloat16 tensors, forward and backward, in float32 and rounds once at the end."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func not in (conv2d, linear) or args[0].dtype != torch.bfloat16:
            return func(*args, **(kwargs or {}))
        wide = [arg.float() if isinstance(arg, torch.Tensor) else arg for arg in args]
        return func(*wide, **(kwargs or {})).bfloat16()


def energies(model: Model, precision: str) -> torch.Tensor:
    """Energies in float32 of the states after STEPS steps."""
    start = model.start(CHAINS, rng=generator(0)).x
    walked = prepare(model.net, temperature=model.recipe.temperature, precision=precision)  # type: ignore[arg-type]
    x, _ = langevin(walked, start, steps=STEPS, step_size=model.recipe.langevin.step_size, noise=seeded(1))
    with torch.no_grad():
        return model.energy(x)


def cosines(net: torch.nn.Module, x: torch.Tensor) -> str:
    half, full = (gradient(prepare(net, precision=p), x).flatten(1) for p in ("bf16", "f32"))  # type: ignore[arg-type]
    values = cosine_similarity(half, full)
    return f"mean {values.mean():.4f}, {values.min():.4f} to {values.max():.4f}"


def main(runs: list[str]) -> None:
    for width in (32, 64, 256):
        torch.manual_seed(0)
        x = torch.randn(8, 3, 32, 32).clamp(-1, 1)
        print(f"cosine at initialization, 32x32, width {width}: {cosines(nets.SNGANEnergy(32, width, 3), x)}")
    for run in runs:
        model = load(run)
        print(f"{run} ({model.recipe.hash}), {CHAINS} chains, {STEPS} steps")
        print(f"  cosine after training: {cosines(model.net, model.sample(64))}")
        full, half = energies(model, "f32"), energies(model, "bf16")
        error = math.sqrt((full.var() + half.var()) / CHAINS)
        print(f"  energy in float32 {full.mean():.2f}, standard deviation {full.std():.2f}")
        print(f"  energy in bf16    {half.mean():.2f}, standard deviation {half.std():.2f}")
        print(f"  difference {half.mean() - full.mean():+.2f} ± {1.96 * error:.2f} (95 %)")
        print(f"  Kolmogorov-Smirnov p = {ks_2samp(full, half).pvalue:.3f}")


if __name__ == "__main__":
    with nullcontext() if has_bf16(torch.device("cpu")) else SummedInFloat32():
        main(sys.argv[1:] or sorted(map(str, Path("runs/results/shortrun").glob("digits-shortrun-seed*"))))
