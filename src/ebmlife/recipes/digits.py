"""Recipes for scikit-learn's 1,797 digits of 8x8 pixels, which come with the package: minutes on two cores."""

from typing import Any

from ebmlife.recipe import part
from ebmlife.recipes.registry import ablated, compared, named


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


@named
def digits_prior() -> dict[str, Any]:
    """A prior energy for digits-longrun: chains from data that live for five walks on average. Minutes on two cores.

    ebmlife train digits-prior --out runs/digits-prior
    """
    return {
        "updates": 2000,
        "batch": 64,
        "data": part("digits"),
        "data_noise": 0.08,
        "net": part("sngan", width=16),
        "temperature": 1e-2,
        "tau": 1.0,
        "langevin": {"step_size": 0.04, "steps": 30},
        "start": part("data"),
        "chains": part("persistent", size=2000, rejuvenate=0.2),
        "optimizer": {"learning_rate": "3e-4, 1e-4 @ 1500", "ema": 0.99},
        "sampling_steps": 150,
        "watch": {"pictures_every": 500},
        "checkpoint": {"every": 500},
    }


@named
@ablated
def digits_longrun() -> dict[str, Any]:
    """A longrun density of digits: the sum of a fixed prior energy, a learned one and a Gaussian. Chains from data.

    ebmlife train digits-prior --out runs/digits-prior
    ebmlife train digits-longrun --out runs/digits-longrun
    ebmlife exam runs/digits-longrun
    """
    return digits_prior() | {
        "updates": 6000,
        "prior": {"run": "runs/digits-prior"},
        "chains": part("maturing", size=1000, burn_in_size=500, mature=50),
        "optimizer": {"learning_rate": "3e-4, 1e-4 @ 1500, 1e-5 @ 3000, 1e-6 @ 4500", "ema": 0.99},
        "sampling_steps": 500,
    }
