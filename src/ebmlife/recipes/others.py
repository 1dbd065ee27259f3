"""Densities learned by other means, which the paper's appendix E finds no longrun samplers: scores, flows, recovery."""

from typing import Any

from ebmlife.recipes.registry import named
from ebmlife.recipes.schema import part


@named
def digits_score() -> dict[str, Any]:
    """A score network on 8x8 digits by denoising: minutes on two cores.

    Chains walk on the score of the smallest noise, 0.02 (0.01 of pixels in [0, 1], as in the paper).

        ebmlife train digits-score --out runs/digits-score
    """
    return {
        "method": "score",
        "updates": 6000,
        "batch": 128,
        "data": part("digits"),
        "net": part("score", width=32),
        "noise": {"largest": 4.0, "smallest": 0.02, "count": 12},
        "optimizer": {"learning_rate": "1e-3, 3e-4 @ 4000, 1e-4 @ 5000"},
        "langevin": {"step_size": 0.008},
        "watch": {"pictures_every": 1000},
    }


@named
def mnist_score() -> dict[str, Any]:
    """A narrow score network on MNIST: hours on two cores.

    Chains walk on the score of the smallest noise, 0.02 (0.01 of pixels in [0, 1], as in the paper). Not measured yet.

        ebmlife train mnist-score --out runs/mnist-score
    """
    return {
        "method": "score",
        "updates": 15_000,
        "batch": 64,
        "data": part("mnist"),
        "net": part("score", width=32),
        "noise": {"largest": 14.0, "smallest": 0.02, "count": 30},
        "start": part("annealed", steps=5, relative_step=0.35),
        "optimizer": {"learning_rate": "1e-3, 3e-4 @ 10000, 1e-4 @ 13000"},
        "langevin": {"step_size": 0.008},
        "watch": {"pictures_every": 1000},
        "checkpoint": {"every": 500},
    }


@named
def cifar10_score_small() -> dict[str, Any]:
    """A narrow score network on CIFAR-10: hours on two cores.

    Chains walk on the score of the smallest noise, 0.02 (0.01 of pixels in [0, 1], as in the paper). Not tuned yet.

        ebmlife train cifar10-score-small --out runs/cifar10-score-small
    """
    return {
        "method": "score",
        "updates": 20_000,
        "batch": 64,
        "flip": True,
        "data": part("cifar10"),
        "net": part("score", width=64),
        "noise": {"largest": 20.0, "smallest": 0.02, "count": 40},
        "start": part("annealed", steps=5, relative_step=0.35),
        "optimizer": {"learning_rate": "3e-4, 1e-4 @ 15000"},
        "langevin": {"step_size": 0.008},
        "watch": {"pictures_every": 1000},
        "checkpoint": {"every": 500},
    }


@named
def digits_glow() -> dict[str, Any]:
    """A Glow on 8x8 digits by exact maximum likelihood: minutes on two cores (needs `ebmlife[flows]`).

    Digits have 17 gray levels; each is spread over its bin of 1/8.

        ebmlife train digits-glow --out runs/digits-glow
    """
    return {
        "method": "flow",
        "updates": 3000,
        "batch": 128,
        "data": part("digits"),
        "levels": 17,
        "net": part("glow", scales=2, depth=8, width=64),
        "optimizer": {"learning_rate": "1e-3, 3e-4 @ 2000, 1e-4 @ 2600", "clip": 10.0},
        "langevin": {"step_size": 0.01},
        "watch": {"pictures_every": 500},
    }


@named
def mnist_glow() -> dict[str, Any]:
    """A Glow on MNIST by exact maximum likelihood: hours on two cores (needs `ebmlife[flows]`).

    Not measured yet.

        ebmlife train mnist-glow --out runs/mnist-glow
    """
    return {
        "method": "flow",
        "updates": 6000,
        "batch": 64,
        "data": part("mnist"),
        "levels": 256,
        "net": part("glow", scales=2, depth=8, width=64),
        "optimizer": {"learning_rate": "1e-3, 3e-4 @ 4000, 1e-4 @ 5000", "clip": 10.0},
        "langevin": {"step_size": 0.005},
        "watch": {"pictures_every": 500},
        "checkpoint": {"every": 500},
    }


@named
def digits_recovery() -> dict[str, Any]:
    """EBMs of digits given noisier digits, by recovery likelihood with six levels: minutes on two cores.

    Chains walk on the lowest level's energy; with `--conditional` each is held to a noisier image of its start, as the
    paper examines Gao et al.'s T6.

        ebmlife train digits-recovery --out runs/digits-recovery
        ebmlife exam runs/digits-recovery --conditional
    """
    return {
        "method": "recovery",
        "updates": 3000,
        "batch": 64,
        "data": part("digits"),
        "net": part("sngan", width=32),
        "optimizer": {"learning_rate": "1e-3, 3e-4 @ 2000, 1e-4 @ 2600", "ema": 0.99},
        "langevin": {"step_size": 0.005},
        "watch": {"pictures_every": 500},
    }
