"""Recipes for MNIST at 28x28: an hour or a few on two cores."""

from typing import Any

from ebmlife.recipes.registry import ablated, compared, named, unannealed
from ebmlife.recipes.schema import part


@named
@compared
def mnist_shortrun() -> dict[str, Any]:
    """Hybrid shortrun synthesis of MNIST with narrow networks: hours on two cores.

    Tried for up to 600 updates, seed 0: with noise of 0.05 on the data, steps of 0.03, ReLU and no penalty on energies,
    both energies fell together and the training diverged by update 200. With these settings energies stayed within
    hundreds from update 200 to 600, and samples were strokes. Which of the changes is needed was not measured.

        ebmlife train mnist-shortrun --out runs/mnist
    """
    optimizer = {"learning_rate": "3e-4, 1e-4 @ 10000, 3e-5 @ 14000", "ema": 0.995}
    return {
        "updates": 16_000,
        "batch": 64,
        "data": part("mnist"),
        "data_noise": 0.1,
        "energy_l2": 0.005,
        "net": part("sngan", width=32, activation="silu"),
        "temperature": 1e-2,
        "langevin": {"step_size": 0.05, "steps": 20, "precision": "auto"},
        "start": part("generator"),
        "chains": part("persistent", size=5000, rejuvenate=0.5, rounds=2),
        "optimizer": optimizer,
        "generator": {"net": part("sngan", width=32, latent=128, batch_norm=True), "optimizer": optimizer},
        "sampling_steps": 40,
        "watch": {"pictures_every": 250},
        "checkpoint": {"every": 250},
    }


def _from_data() -> dict[str, Any]:
    """What the longer lengths share: a narrow network, a Gaussian term, noise on the data, chains from data."""
    return {
        "updates": 2000,
        "batch": 64,
        "data": part("mnist"),
        "data_noise": 0.15,
        "energy_l2": 0.005,
        "net": part("sngan", width=24, activation="silu"),
        "temperature": 1e-2,
        "tau": 1.0,
        "langevin": {"step_size": 0.1, "steps": 20, "precision": "auto"},
        "start": part("data"),
        "optimizer": {"learning_rate": "3e-4, 1e-4 @ 1000, 3e-5 @ 1500", "ema": 0.99},
        "watch": {"pictures_every": 250},
        "checkpoint": {"every": 250},
    }


@named
@unannealed
def mnist_midrun() -> dict[str, Any]:
    """An energy for defense of MNIST, with chains from data: hours on two cores.

    The step size is large: a chain must diffuse further than an attack of radius 0.2 reaches. Not measured yet.

        ebmlife train mnist-midrun --out runs/mnist-midrun
    """
    steps, lifetime = 20, 400
    return _from_data() | {
        "updates": 6000,
        "data_noise": 0.1,
        "net": part("sngan", width=32, activation="silu"),
        "tau": None,
        "langevin": {"step_size": 0.05, "steps": steps, "precision": "auto"},
        "chains": part("persistent", size=1280, rejuvenate=steps / lifetime),
        "optimizer": {"learning_rate": "3e-4, 1e-4 @ 3000, 3e-5 @ 4500, 1e-5 @ 5500", "ema": 0.995},
        "sampling_steps": lifetime // 2,  # of the defense: what is trained for reaches further
    }


@named
def mnist_prior() -> dict[str, Any]:
    """A prior energy for mnist-longrun, with chains from data of 100 steps on average: half an hour on two cores.

    ebmlife train mnist-prior --out runs/mnist-prior
    """
    return _from_data() | {
        "chains": part("persistent", size=1280, rejuvenate=0.2),
        "sampling_steps": 100,
    }


@named
@ablated
def mnist_longrun() -> dict[str, Any]:
    """A longrun density of MNIST: a fixed prior energy, a learned one and a Gaussian. Hours on two cores.

    As with the 8x8 digits, all chains walk at every update and are burned in for many thousand steps, because how many
    digits there are of each kind is learned from the chains alone. Not measured yet.

    ebmlife train mnist-prior --out runs/mnist-prior
    ebmlife train mnist-longrun --out runs/mnist-longrun
    ebmlife exam runs/mnist-longrun
    """
    return _from_data() | {
        "updates": 8000,
        "batch": 128,
        "prior": {"run": "runs/mnist-prior"},
        "chains": part("maturing", size=128, burn_in_size=128, mature=4000, burn_in_steps=5),
        "optimizer": {
            "learning_rate": "3e-4, 1e-4 @ 1000, 3e-5 @ 3000, 1e-5 @ 5000, 3e-6 @ 7000",
            "ema": "0.99, 0.999 @ 3000, 0.9998 @ 5000",
        },
        "sampling_steps": 1000,
        "watch": {"pictures_every": 500},
    }
