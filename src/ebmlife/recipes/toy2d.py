"""Recipes for densities of the plane that are known exactly, by three lengths of chain: half a minute of one core.

Network, data, step size and updates are the same in all three; only the chains differ. Modes, rings and arms are wider
than the toys' own: Langevin chains must cross between them within the training, because chains that never leave a mode
do not determine its mass. (At the mixture's own width, 0.06, the barrier is 11 nats; after 2,000 updates from data one
of the eight modes had nearly all of the mass.)
"""

from typing import Any

from ebmlife.recipes.registry import lengthened, named
from ebmlife.recipes.schema import part


def _shortrun(toy: str, *, scale: float, step_size: float, bandwidth: float) -> dict[str, Any]:
    return {
        "updates": 1000,
        "batch": 256,
        "data": part("toy", name=toy, scale=scale),
        "net": part("perceptron", width=64, depth=2, fourier=32, bandwidth=bandwidth),
        "temperature": 1.0,
        "tau": 1.0,
        "langevin": {"step_size": step_size, "steps": 10, "clip": 0.1},
        "start": part("uniform"),
        "chains": part("fresh"),
        "optimizer": {"learning_rate": "2e-3, 1e-3 @ 400, 3e-4 @ 700, 1e-4 @ 900", "momentum": 0.0, "ema": 0.995},
        "sampling_steps": 10,
        "watch": {"pictures": 500},
        "checkpoint": {"every": 500},
    }


@named
@lengthened
def toy_mixture() -> dict[str, Any]:
    """Shortrun on eight Gaussians around a circle: ten steps from noise at every update.

    ebmlife train toy-mixture --out runs/mixture
    """
    return _shortrun("mixture", scale=0.12, step_size=0.05, bandwidth=5.0)


@named
@lengthened
def toy_rings() -> dict[str, Any]:
    """Shortrun on concentric rings: ten steps from noise at every update.

    ebmlife train toy-rings --out runs/rings
    """
    return _shortrun("rings", scale=0.06, step_size=0.03, bandwidth=8.0)


@named
@lengthened
def toy_spirals() -> dict[str, Any]:
    """Shortrun on two spiral arms: ten steps from noise at every update.

    ebmlife train toy-spirals --out runs/spirals
    """
    return _shortrun("spirals", scale=0.06, step_size=0.03, bandwidth=8.0)
