"""Other people's attacks on a defended classifier, as on any model. They skip where a package is not installed."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attacks.small import Linear, images
from ebmlife.defense import DefendedClassifier, Purifier
from ebmlife.sampling.energy import gaussian

RADIUS = 0.13  # in pixels of [0, 1]
X, Y = images(8)
WITHIN = X.flatten(1).mean(1).abs() < 2 * RADIUS


def imported(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these packages are older than the torch and numpy beside them
        return pytest.importorskip(name, reason=f"{name} is not installed: pip install ebmlife[dev]")


@pytest.fixture(params=["bpda", "full", "smooth"])
def robust(request: pytest.FixtureRequest) -> DefendedClassifier:
    purifier = Purifier(gaussian(1.0), steps=3, step_size=1e-3, batch=16)
    return DefendedClassifier(Linear(), purifier, replicas=4, gradient=request.param).eval()


def judge(robust: nn.Module, adversaries: Tensor) -> None:
    """In the ball, and broken where the mean can be moved across 0, nowhere else."""
    assert ((adversaries - X) / 2).abs().max() <= RADIUS * (1 + 1e-4)
    assert torch.equal(robust(adversaries).argmax(1) != Y, WITHIN)


def test_torchattacks(robust: DefendedClassifier) -> None:
    """It attacks images of [0, 1], and is given the scaling of the model: (x - 0.5) / 0.5."""
    torchattacks = imported("torchattacks")
    attack = torchattacks.PGD(robust, eps=RADIUS, alpha=RADIUS, steps=4, random_start=False)
    attack.set_normalization_used(mean=[0.5], std=[0.5])
    judge(robust, attack(X, Y))
    eot = torchattacks.EOTPGD(robust, eps=RADIUS, alpha=RADIUS, steps=3, eot_iter=2, random_start=False)
    eot.set_normalization_used(mean=[0.5], std=[0.5])
    judge(robust, eot(X, Y))


def test_foolbox(robust: DefendedClassifier) -> None:
    foolbox = imported("foolbox")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = foolbox.PyTorchModel(robust, bounds=(-1, 1))
        attack = foolbox.attacks.LinfPGD(rel_stepsize=1.0, steps=4, random_start=False)
        _, clipped, success = attack(model, X, Y, epsilons=2 * RADIUS)
    judge(robust, clipped)
    assert torch.equal(success, WITHIN)


def test_adversarial_robustness_toolbox(robust: DefendedClassifier) -> None:
    imported("art")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from art.attacks.evasion import ProjectedGradientDescent
        from art.estimators.classification import PyTorchClassifier

        model = PyTorchClassifier(
            robust,
            loss=nn.CrossEntropyLoss(),
            input_shape=tuple(X.shape[1:]),
            nb_classes=3,
            clip_values=(-1, 1),
            device_type="cpu",
        )
        attack = ProjectedGradientDescent(
            model, norm=np.inf, eps=2 * RADIUS, eps_step=2 * RADIUS, max_iter=4, verbose=False
        )
        adversaries = attack.generate(X.numpy(), y=Y.numpy())
    judge(robust, torch.from_numpy(adversaries))
