"""Recipes for CelebA at 64x64."""

from typing import Any

from ebmlife.recipes.registry import ablated, compared, named
from ebmlife.recipes.schema import Part, part

_CHECKPOINT = {"every": 1000, "keep": 2, "keep_every": 10_000}


def _data() -> Part:
    return part("folder", folder="~/.cache/ebmlife/celeba", size=64)


@named
@compared
def celeba_shortrun() -> dict[str, Any]:
    """The paper's shortrun synthesis of CelebA at 64x64, with exactly the settings of its tables (needs a GPU).

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
        "checkpoint": _CHECKPOINT,
    }


def _frozen_generator() -> dict[str, Any]:
    net = part("sngan", width=1024, latent=128, batch_norm=True)
    return {"net": net, "optimizer": None, "run": "runs/celeba-gan"}


@named
def celeba_prior() -> dict[str, Any]:
    """The paper's prior EBM of CelebA at 64x64, with exactly the settings of its tables (needs a GPU).

    States are walked five times on average. It needs a trained generator: `ebmlife import` takes mimicry's.

        ebmlife train celeba-prior --out runs/celeba-prior --data.source celeba --generator.run runs/celeba-gan
    """
    return {
        "updates": 150_000,
        "batch": 128,
        "data": _data(),
        "data_noise": 2e-2,
        "net": part("sngan", width=1024),
        "temperature": 1e-4,
        "tau": 1.5e-1,
        "langevin": {"step_size": 1e-2, "steps": 100},
        "start": part("generator"),
        "chains": part("persistent", size=10_000, rejuvenate=0.2),
        "optimizer": {"learning_rate": 1e-4, "ema": 0.9999},
        "generator": _frozen_generator(),
        "sampling_steps": 500,
        "checkpoint": _CHECKPOINT,
    }


@named
@ablated
def celeba_longrun() -> dict[str, Any]:
    """The paper's longrun density of CelebA at 64x64, with exactly the settings of its tables (needs a GPU).

    Paper: FID 37.4 of 5,000 samples after 100,000 steps, 45.9 after a million. Measured here: not yet.

        ebmlife train celeba-longrun --out runs/celeba-longrun --data.source celeba
        ebmlife exam runs/celeba-longrun --chains 5000 --evaluation-temperature 1.01
    """
    return celeba_prior() | {
        "updates": 250_000,
        "prior": {"run": "runs/celeba-prior"},
        "chains": part("maturing", size=15_000, burn_in_size=1000, mature=750, burn_in_steps=100),
        "optimizer": {"learning_rate": "gamma_anneal", "ema": 0.9999},
        "sampling_steps": 1000,
    }
