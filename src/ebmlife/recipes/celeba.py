"""Recipes for CelebA at 64x64."""

from typing import Any

from ebmlife.recipe import Part, part
from ebmlife.recipes.registry import compared, named


def _data() -> Part:
    return part("folder", folder="~/.cache/ebmlife/celeba", size=64)


@named
@compared
def celeba_shortrun() -> dict[str, Any]:
    """The paper's shortrun synthesis of CelebA at 64x64, to the last digit of its tables (needs a GPU).

    The generator has no batch norm, as in the paper's table; its text says that it has (then:
    --generator.net.batch_norm true). Paper: FID 19.7 with 50,000 samples. Measured here: not yet.

        ebmlife train celeba-shortrun --out runs/celeba --data.source celeba
    """
    return {
        "updates": 150_000,
        "batch": 128,
        "data": _data(),
        "data_noise": 1e-2,
        "net": part("sngan", width=1024),
        "temperature": 1e-6,
        "langevin": {"step_size": 3e-3, "steps": 75},
        "start": part("generator"),
        "chains": part("persistent", size=10_000, rejuvenate=0.5, rounds=2),
        "optimizer": {"learning_rate": 1e-4, "ema": 0.9999},
        "generator": {
            "net": part("sngan", width=1024, latent=128, batch_norm=False),
            "optimizer": {"learning_rate": 1e-4, "ema": 0.9999},
        },
        "sampling_steps": 300,
        "checkpoint": {"every": 1000, "keep": 2, "keep_every": 10_000},
    }
