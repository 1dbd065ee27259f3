"""Recipes for CIFAR-10 at 32x32."""

from typing import Any

from ebmlife.recipes.registry import ablated, compared, named
from ebmlife.recipes.schema import part


@named
@compared
def cifar10_shortrun() -> dict[str, Any]:
    """The paper's shortrun synthesis of CIFAR-10, with exactly the settings of its tables (needs a GPU).

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
    updates, at 1e-2 they calm down within 200. 40 steps of 0.01 left frames along the borders after 800 updates; 20 of
    0.02, which reach further, had lost them after 300. Weights are averaged over 200 updates: a longer memory would
    still hold some of the initialization at the end. Measured here: fid_5k 129, and 118 of the generator alone; with
    cooperative learning 223; see docs/results/shortrun.md. `zoo:cifar10-shortrun-small` is that run.

        ebmlife train cifar10-shortrun-small --out runs/cifar10-small
    """
    optimizer = {"learning_rate": "3e-4, 1e-4 @ 3000", "ema": 0.995}
    return {
        "updates": 4000,
        "batch": 64,
        "data": part("cifar10"),
        "data_noise": 0.03,
        "net": part("sngan", width=32),
        "temperature": 1e-2,
        "langevin": {"step_size": 0.02, "steps": 20},
        "start": part("generator"),
        "chains": part("persistent", size=5000, rejuvenate=0.5, rounds=2),
        "optimizer": optimizer,
        "generator": {"net": part("sngan", width=32, latent=128, batch_norm=True), "optimizer": optimizer},
        "sampling_steps": 40,
        "watch": {"pictures_every": 250},
        "checkpoint": {"every": 250},
    }


def _frozen_generator() -> dict[str, Any]:
    net = part("sngan", width=256, latent=128, batch_norm=True)
    return {"net": net, "optimizer": None, "run": "runs/cifar10-gan"}


@named
def cifar10_prior() -> dict[str, Any]:
    """The paper's prior EBM of CIFAR-10, with exactly the settings of its tables (needs a GPU).

    Chains live for five walks of 50 steps on average, so that long chains leave the data. The longrun model
    learns to correct this. It needs a trained generator.

        ebmlife train cifar10-prior --out runs/cifar10-prior --generator.run runs/cifar10-gan
    """
    return {
        "updates": 150_000,
        "batch": 128,
        "data": part("cifar10"),
        "data_noise": 2e-2,
        "net": part("sngan", width=256),
        "temperature": 1e-4,
        "tau": 1.5e-1,
        "langevin": {"step_size": 1e-2, "steps": 50},
        "start": part("generator"),
        "chains": part("persistent", size=10_000, rejuvenate=0.2),
        "optimizer": {"learning_rate": 1e-4, "ema": 0.9999},
        "generator": _frozen_generator(),
        "sampling_steps": 250,
        "checkpoint": {"every": 1000, "keep": 2, "keep_every": 10_000},
    }


@named
@ablated
def cifar10_longrun() -> dict[str, Any]:
    """The paper's longrun density of CIFAR-10, with exactly the settings of its tables (needs a GPU).

    Paper: FID 49.2 of 5,000 samples after 100,000 steps, 51.7 after a million. Measured here: not yet. Samples
    that are drawn during training have only 1,000 steps; the exam runs long chains.

        ebmlife train cifar10-longrun --out runs/cifar10-longrun --prior.run runs/cifar10-prior
        ebmlife exam runs/cifar10-longrun --chains 5000 --evaluation-temperature 1.005
    """
    return {
        "updates": 250_000,
        "batch": 128,
        "data": part("cifar10"),
        "data_noise": 2e-2,
        "net": part("sngan", width=256),
        "temperature": 1e-4,
        "tau": 1.5e-1,
        "prior": {"run": "runs/cifar10-prior"},
        "langevin": {"step_size": 1e-2, "steps": 100},
        "start": part("generator"),
        "chains": part("maturing", size=10_000, burn_in_size=1000, mature=750, burn_in_steps=100),
        "optimizer": {"learning_rate": "gamma_anneal", "ema": 0.9999},
        "generator": _frozen_generator(),
        "sampling_steps": 1000,
        "checkpoint": {"every": 1000, "keep": 2, "keep_every": 10_000},
    }


@named
def cifar10_prior_small() -> dict[str, Any]:
    """A prior energy for cifar10-longrun-small, with chains from data of about 100 steps: half an hour.

    Temperature, steps and their size are those of cifar10-shortrun-small, which were tried.

        ebmlife train cifar10-prior-small --out runs/cifar10-prior-small
    """
    return {
        "updates": 2000,
        "batch": 64,
        "data": part("cifar10"),
        "data_noise": 0.03,
        "net": part("sngan", width=32),
        "temperature": 1e-2,
        "tau": 0.5,
        "langevin": {"step_size": 0.02, "steps": 20},
        "start": part("data"),
        "chains": part("persistent", size=1280, rejuvenate=0.2),
        "optimizer": {"learning_rate": "3e-4, 1e-4 @ 1500", "ema": 0.995},
        "sampling_steps": 100,
        "watch": {"pictures_every": 250},
        "checkpoint": {"every": 250},
    }


@named
@ablated
def cifar10_longrun_small() -> dict[str, Any]:
    """A longrun density of CIFAR-10 with a narrow network and chains from data: an hour or two on two cores.

    As with digits, states are few, and few of them walk at a time, so that chains become long within an hour. States
    are burned in for 10,000 steps. Measured here: over 20,000 steps nothing saturates, while objects turn to patches in
    the first thousand; fid_64 268 at 1,000 steps, 289 at 20,000 (64 data: 161 to 177). See docs/results/density.md.

        ebmlife train cifar10-prior-small --out runs/cifar10-prior-small
        ebmlife train cifar10-longrun-small --out runs/cifar10-longrun-small
    """
    return cifar10_prior_small() | {
        "updates": 3000,
        "batch": 32,
        "prior": {"run": "runs/cifar10-prior-small"},
        "chains": part("maturing", size=128, burn_in_size=32, mature=500),
        "optimizer": {"learning_rate": "3e-4, 1e-4 @ 500, 3e-5 @ 1200, 1e-5 @ 2200", "ema": 0.998},
        "sampling_steps": 500,
        "watch": {"pictures_every": 500},
    }
