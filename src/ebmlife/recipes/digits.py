"""Recipes for scikit-learn's 1,797 digits of 8x8 pixels, which come with the package: minutes on two cores."""

from typing import Any

from ebmlife.recipe import part
from ebmlife.recipes.registry import compared, named


@named
@compared
def digits_shortrun() -> dict[str, Any]:
    """Hybrid shortrun synthesis of 8x8 digits: what `ebmlife demo` trains.

    Algorithm 1 of the paper with narrow networks and few steps. The learning rates fall at the end, when the samples
    are legible and what remains is grain.

        ebmlife train digits-shortrun --out runs/digits
    """
    optimizer = {"learning_rate": "1e-3, 3e-4 @ 500, 1e-4 @ 800", "ema": 0.99}
    return {
        "updates": 1000,
        "batch": 64,
        "data": part("digits"),
        "data_noise": 0.05,
        "net": part("sngan", width=32),
        "temperature": 1e-2,
        "langevin": {"step_size": 0.03, "steps": 30},
        "start": part("generator"),
        "chains": part("persistent", size=2000, rejuvenate=0.5, rounds=2),
        "optimizer": optimizer,
        "generator": {"net": part("sngan", width=32, latent=128, batch_norm=True), "optimizer": optimizer},
        "sampling_steps": 60,
        "watch": {"pictures_every": 250},
        "checkpoint": {"every": 250},
    }
