"""Recipes for ImageNet at 64x64, 128x128 and 224x224; all need GPUs, and --data.folder with the training images."""

from typing import Any

from ebmlife.recipes.registry import ablated, compared, named, unannealed
from ebmlife.recipes.schema import Part, part

_CHECKPOINT = {"every": 1000, "keep": 2, "keep_every": 10_000}


def _data(size: int) -> Part:
    """Cropped as the authors' code does it: the largest square, anywhere along the longer side."""
    return part("folder", folder="imagenet/train", size=size, crop=1.0)


@named
@compared
def imagenet128_shortrun() -> dict[str, Any]:
    """The paper's shortrun synthesis of ImageNet at 128x128, with exactly the settings of its tables (needs GPUs).

    Paper: FID 42.3 with 50,000 samples. Measured here: not yet.

        ebmlife train imagenet128-shortrun --out runs/imagenet128 --data.folder imagenet/train
    """
    return {
        "updates": 300_000,
        "batch": 128,
        "data": _data(128),
        "data_noise": 1e-2,
        "net": part("sngan", width=1024),
        "temperature": 1e-7,
        "langevin": {"step_size": 3e-3, "steps": 50},
        "start": part("generator"),
        "chains": part("persistent", size=10_000, rejuvenate=0.5, rounds=2),
        "optimizer": {"learning_rate": 1e-4, "clip": 50, "ema": 0.9999},
        "generator": {
            "net": part("sngan", width=1024, latent=128, batch_norm=False),
            "optimizer": {"learning_rate": 5e-5, "clip": 50, "ema": 0.9999},
        },
        "sampling_steps": 320,
        "checkpoint": _CHECKPOINT,
    }


@named
@unannealed
def imagenet224_midrun() -> dict[str, Any]:
    """The paper's energy for defense of ImageNet at 224x224, with exactly the settings of its tables (needs GPUs).

    States are rejuvenated by a frozen BigGAN-deep of 256x256, resized. Paper: 68.4 % natural and 41.8 % robust accuracy
    of EfficientNet-B7 at 2/255. Measured here: not yet.

        ebmlife import biggan-deep-256-pytorch_model.bin --out runs/biggan-deep-256
        ebmlife train imagenet224-midrun --out runs/imagenet224 --data.folder imagenet/train
    """
    return {
        "updates": 150_000,
        "batch": 64,
        "data": _data(224),
        "data_noise": 3e-2,
        "net": part("biggan", width=48),
        "temperature": 1e-5,
        "langevin": {"step_size": 2e-2, "steps": 100},
        "start": part("generator"),
        "chains": part("persistent", size=10_000, rejuvenate=0.05),
        "optimizer": {"learning_rate": "gamma_anneal", "ema": 0.9999},
        "generator": {"net": part("biggan"), "optimizer": None, "run": "runs/biggan-deep-256"},
        "sampling_steps": 200,
        "checkpoint": _CHECKPOINT,
    }


@named
def imagenet64_prior() -> dict[str, Any]:
    """The paper's prior EBM of ImageNet at 64x64, with exactly the settings of its tables (needs GPUs).

    States are walked five times on average, and start from a frozen BigGAN-deep of 128x128, resized.

        ebmlife import biggan-deep-128-pytorch_model.bin --out runs/biggan-deep-128
        ebmlife train imagenet64-prior --out runs/imagenet64-prior --data.folder imagenet/train
    """
    return {
        "updates": 150_000,
        "batch": 128,
        "data": _data(64),
        "data_noise": 1.5e-2,
        "net": part("sngan", width=1024),
        "temperature": 1e-5,
        "tau": 1.5e-1,
        "langevin": {"step_size": 1e-2, "steps": 100},
        "start": part("generator"),
        "chains": part("persistent", size=10_000, rejuvenate=0.2),
        "optimizer": {"learning_rate": 1e-4, "ema": 0.9999},
        "generator": {"net": part("biggan"), "optimizer": None, "run": "runs/biggan-deep-128"},
        "sampling_steps": 500,
        "checkpoint": _CHECKPOINT,
    }


@named
@ablated
def imagenet64_longrun() -> dict[str, Any]:
    """The paper's longrun density of ImageNet at 64x64, with exactly the settings of its tables (needs GPUs).

    Paper: FID 82.3 of 5,000 samples after 100,000 steps, 77.8 after a million. Measured here: not yet.

        ebmlife train imagenet64-longrun --out runs/imagenet64-longrun --data.folder imagenet/train
        ebmlife exam runs/imagenet64-longrun --chains 5000 --evaluation-temperature 1.01
    """
    return imagenet64_prior() | {
        "updates": 250_000,
        "data_noise": 2e-2,
        "prior": {"run": "runs/imagenet64-prior"},
        "chains": part("maturing", size=15_000, burn_in_size=1000, mature=750, burn_in_steps=100),
        "optimizer": {"learning_rate": "gamma_anneal", "ema": 0.9999},
        "sampling_steps": 1000,
    }
