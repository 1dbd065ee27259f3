"""Recipes for CIFAR-10 at 32x32."""

from typing import Any

from ebmlife.recipe import part
from ebmlife.recipes.registry import compared, named


@named
@compared
def cifar10_shortrun() -> dict[str, Any]:
    """The paper's shortrun synthesis of CIFAR-10, to the last digit of its tables (needs a GPU).

    Paper: FID 22.1 with 50,000 samples. Measured here: not yet.

        ebmlife train cifar10-shortrun --out runs/cifar10 --data.download true
    """
    return {
        "updates": 100_000,
        "batch": 128,
        "data": part("cifar10"),
        "data_noise": 1e-2,
        "net": part("sngan", width=256),
        "temperature": 1e-4,
        "langevin": {"step_size": 5e-3, "steps": 100},
        "start": part("generator"),
        "chains": part("persistent", size=10_000, rejuvenate=0.5, rounds=2),
        "optimizer": {"learning_rate": 1e-4, "ema": 0.9999},
        "generator": {
            "net": part("sngan", width=256, latent=128, batch_norm=True),
            "optimizer": {"learning_rate": 1e-4, "ema": 0.9999},
        },
        "sampling_steps": 350,
        "checkpoint": {"every": 1000, "keep": 2, "keep_every": 10_000},
    }


@named
@compared
def cifar10_shortrun_small() -> dict[str, Any]:
    """Hybrid shortrun synthesis of CIFAR-10 with narrow networks and fewer steps: about an hour on two cores.

    The temperature and the learning rates go together: at 1e-3 and 3e-4 energies swung by thousands for hundreds of
    updates, at 1e-2 they calm down within 200.

        ebmlife train cifar10-shortrun-small --out runs/cifar10-small
    """
    optimizer = {"learning_rate": "3e-4, 1e-4 @ 2000", "ema": 0.999}
    return {
        "updates": 2500,
        "batch": 64,
        "data": part("cifar10"),
        "data_noise": 0.03,
        "net": part("sngan", width=32),
        "temperature": 1e-2,
        "langevin": {"step_size": 0.01, "steps": 40},
        "start": part("generator"),
        "chains": part("persistent", size=5000, rejuvenate=0.5, rounds=2),
        "optimizer": optimizer,
        "generator": {"net": part("sngan", width=64, latent=128, batch_norm=True), "optimizer": optimizer},
        "sampling_steps": 80,
        "watch": {"pictures_every": 250},
        "checkpoint": {"every": 250},
    }
