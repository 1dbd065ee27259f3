"""Recipes for scikit-learn's 1,797 digits of 8x8 pixels, which come with the package: minutes on two cores."""

from typing import Any

from ebmlife.recipes.registry import ablated, compared, named
from ebmlife.recipes.schema import part


@named
@compared
def digits_shortrun() -> dict[str, Any]:
    """Hybrid shortrun synthesis of 8x8 digits, the recipe of `ebmlife demo`.

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


def _from_data() -> dict[str, Any]:
    """The fields that midrun and longrun share: a narrow network, a Gaussian term, noise on the data, chains from data.

    A step of two thirds of the noise: with half of it, and noise of 0.1, chains take ten times as many steps from one
    digit to another, and the energy cannot learn from what they do not reach.
    """
    return {
        "updates": 1000,
        "batch": 64,
        "data": part("digits"),
        "data_noise": 0.15,
        "net": part("sngan", width=16),
        "temperature": 1e-2,
        "tau": 1.0,
        "langevin": {"step_size": 0.1, "steps": 20},
        "start": part("data"),
        "optimizer": {"learning_rate": "1e-3, 3e-4 @ 500, 1e-4 @ 750, 1e-5 @ 900", "ema": 0.99},
        "watch": {"pictures_every": 500},
        "checkpoint": {"every": 500},
    }


@named
def digits_prior() -> dict[str, Any]:
    """A prior energy for digits-longrun, with chains from data of 100 steps on average.

    ebmlife train digits-prior --out runs/digits-prior
    """
    return _from_data() | {
        "chains": part("persistent", size=1000, rejuvenate=0.2),
        "sampling_steps": 100,
    }


@named
@ablated
def digits_longrun() -> dict[str, Any]:
    """A longrun density of digits: the sum of a fixed prior energy, a learned one and a Gaussian. Chains from data.

    States are burned in for 20,000 steps, in which chains move from digit to digit. How many there are of each kind is
    learned from how many of the chains show it; so all of them walk at every update, and weights are averaged over
    several times as many updates as a chain takes from one kind to another, about 500. Measured here, three trainings:
    512 chains are as far from the data as 512 data are to the end of 100,000 steps; see docs/results/density.md.

    ebmlife train digits-prior --out runs/digits-prior
    ebmlife train digits-longrun --out runs/digits-longrun
    ebmlife exam runs/digits-longrun
    """
    return _from_data() | {
        "updates": 10_000,
        "batch": 256,
        "prior": {"run": "runs/digits-prior"},
        "chains": part("maturing", size=256, burn_in_size=256, mature=4000, burn_in_steps=5),
        "optimizer": {
            "learning_rate": "5e-4, 1e-4 @ 1000, 3e-5 @ 3000, 1e-5 @ 6000, 3e-6 @ 9000",
            "ema": "0.99, 0.999 @ 3000, 0.9998 @ 5000",
        },
        "sampling_steps": 1000,
        "checkpoint": {"every": 500},
    }
