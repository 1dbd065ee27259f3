import pytest

from ebmlife.attacks import PRESETS, Threat, preset
from ebmlife.errors import BadInput


def test_the_papers_table_to_the_last_digit() -> None:
    cifar, imagenet, high = (PRESETS[f"paper-{name}"] for name in ("cifar10", "imagenet", "imagenet-high-power"))
    assert (cifar.steps, cifar.replicas, cifar.verify) == (50, 48, 128)
    assert (cifar.threat, cifar.step_size) == (Threat("linf", 8 / 255), 2 / 255)
    assert (cifar.langevin_steps, cifar.images) == (2000, 5000)
    assert (imagenet.steps, imagenet.replicas, imagenet.verify) == (50, 16, 64)
    assert (imagenet.threat, imagenet.step_size) == (Threat("linf", 2 / 255), 1 / 255)
    assert (imagenet.langevin_steps, imagenet.images) == (200, 10_000)
    assert (high.steps, high.replicas, high.verify, high.images) == (200, 32, 64, 1600)


def test_an_unknown_preset() -> None:
    with pytest.raises(BadInput, match="unknown preset 'paper-cifar'; did you mean 'paper-cifar10'"):
        preset("paper-cifar")
