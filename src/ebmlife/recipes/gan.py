"""SNGANs: generators that midrun and longrun recipes start their chains from, frozen (`--generator.run`)."""

from typing import Any

from ebmlife.recipes.registry import named
from ebmlife.recipes.schema import part


def _adam(**changes: Any) -> dict[str, Any]:
    """The Adam settings of Miyato et al. 2018 for all their networks."""
    return {"learning_rate": 2e-4, "momentum": 0.0, "beta_2": 0.9, "ema": 0.0, **changes}


@named
def digits_gan() -> dict[str, Any]:
    """SNGAN on 8x8 digits: minutes on two cores.

    ebmlife train digits-gan --out runs/digits-gan
    """
    optimizer = _adam(learning_rate=5e-4, decay_until=3000, ema=0.99)
    return {
        "method": "gan",
        "updates": 3000,
        "batch": 64,
        "data": part("digits"),
        "net": part("sngan", width=32),
        "optimizer": optimizer,
        "generator": {"net": part("sngan", width=32, latent=128, batch_norm=True), "optimizer": optimizer},
        "discriminator_steps": 2,
        "watch": {"pictures_every": 500},
    }


@named
def mnist_gan() -> dict[str, Any]:
    """SNGAN on MNIST with narrow networks: an hour or two on two cores.

    Not measured yet.

        ebmlife train mnist-gan --out runs/mnist-gan
    """
    optimizer = _adam(decay_until=20_000, ema=0.999)
    return {
        "method": "gan",
        "updates": 20_000,
        "batch": 64,
        "data": part("mnist"),
        "net": part("sngan", width=32),
        "optimizer": optimizer,
        "generator": {"net": part("sngan", width=32, latent=128, batch_norm=True), "optimizer": optimizer},
        "discriminator_steps": 2,
        "watch": {"pictures_every": 500},
        "checkpoint": {"every": 500},
    }


@named
def cifar10_gan() -> dict[str, Any]:
    """SNGAN on CIFAR-10 with the published networks and settings (needs a GPU).

    Miyato et al. 2018: FID 21.7 after 50,000 updates of the generator, with the learning rate decaying linearly to 0,
    5 steps of the discriminator with 64 images to one of the generator with 128. Measured here: not yet.

        ebmlife train cifar10-gan --out runs/cifar10-gan --data.download true
    """
    optimizer = _adam(decay_until=50_000)
    return {
        "method": "gan",
        "updates": 50_000,
        "batch": 64,
        "data": part("cifar10"),
        "net": part("sngan", width=128),
        "optimizer": optimizer,
        "generator": {"net": part("sngan", width=256, latent=128, batch_norm=True), "optimizer": optimizer},
        "generator_batch": 128,
        "checkpoint": {"every": 1000, "keep": 2, "keep_every": 10_000},
    }


@named
def cifar10_gan_small() -> dict[str, Any]:
    """SNGAN on CIFAR-10 with narrow networks: hours on two cores.

    Not tuned yet.

        ebmlife train cifar10-gan-small --out runs/cifar10-gan-small
    """
    optimizer = _adam(decay_until=20_000, ema=0.999)
    return {
        "method": "gan",
        "updates": 20_000,
        "batch": 64,
        "flip": True,
        "data": part("cifar10"),
        "net": part("sngan", width=32),
        "optimizer": optimizer,
        "generator": {"net": part("sngan", width=64, latent=128, batch_norm=True), "optimizer": optimizer},
        "discriminator_steps": 2,
        "watch": {"pictures_every": 500},
        "checkpoint": {"every": 500},
    }


@named
def celeba_gan() -> dict[str, Any]:
    """SNGAN on CelebA at 64x64 with the settings that reproduce it at this size (needs a GPU).

    100,000 updates at a constant learning rate, as Lee and Town 2020 (mimicry) train it. Measured here: not yet.

        ebmlife train celeba-gan --out runs/celeba-gan
    """
    return {
        "method": "gan",
        "updates": 100_000,
        "batch": 64,
        "data": part("folder", folder="~/.cache/ebmlife/celeba", size=64, source="celeba"),
        "net": part("sngan", width=1024),
        "optimizer": _adam(),
        "generator": {"net": part("sngan", width=1024, latent=128, batch_norm=True), "optimizer": _adam()},
        "checkpoint": {"every": 1000, "keep": 2, "keep_every": 10_000},
    }
