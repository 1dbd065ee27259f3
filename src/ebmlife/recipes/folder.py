"""Recipes for any folder of images."""

from typing import Any

from ebmlife.recipes.registry import named
from ebmlife.recipes.schema import part


@named
def folder_shortrun() -> dict[str, Any]:
    """Hybrid shortrun synthesis of your own folder of images, cropped to squares of 32x32.

    ebmlife train folder-shortrun --data.folder photos --out runs/photos
    """
    return {
        "updates": 20_000,
        "batch": 64,
        "data": part("folder", folder="images", size=32),
        "data_noise": 0.02,
        "net": part("sngan", width=64),
        "temperature": 1e-3,
        "langevin": {"step_size": 0.01, "steps": 60},
        "start": part("generator"),
        "chains": part("persistent", size=5000, rejuvenate=0.5, rounds=2),
        "optimizer": {"learning_rate": 1e-4},
        "generator": {
            "net": part("sngan", width=64, latent=128, batch_norm=True),
            "optimizer": {"learning_rate": 2e-4},
        },
        "sampling_steps": 100,
    }
