"""Recipes for scikit-learn's 1,797 digits of 8x8 pixels, which come with the package: minutes on two cores."""

from typing import Any

from ebmlife.recipe import Generator, Langevin, Optimizer, part
from ebmlife.recipes.registry import named
from ebmlife.schedule import constant


@named
def digits_shortrun() -> dict[str, Any]:
    """Hybrid shortrun synthesis of 8x8 digits: what `ebmlife demo` trains.

    Algorithm 1 of the paper with a narrow network.

        ebmlife train digits-shortrun --out runs/digits
    """
    return {
        "updates": 2000,
        "batch": 64,
        "data": part("digits"),
        "data_noise": 0.03,
        "net": part("sngan", width=64),
        "temperature": 1e-2,
        "langevin": Langevin(step_size=0.02, steps=constant(40)),
        "start": part("generator"),
        "chains": part("persistent", size=2000, rejuvenate=0.5, rounds=2),
        "optimizer": Optimizer(learning_rate=constant(3e-4), ema=0.995),
        "generator": Generator(
            net=part("sngan", width=64, latent=128, batch_norm=True),
            optimizer=Optimizer(learning_rate=constant(5e-4), ema=0.995),
        ),
        "sampling_steps": 60,
    }
