"""Mistakes that would cost hours, found before the first step."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ebmlife import fingerprint
from ebmlife.attacks.losses import Loss
from ebmlife.attacks.threat import Threat
from ebmlife.defense import DefendedClassifier
from ebmlife.energy import curvature, frozen, gradient
from ebmlife.errors import BadInput


def attack(
    robust: DefendedClassifier,
    x: Tensor,
    y: Tensor,
    ids: Sequence[int],
    *,
    steps: int,
    replicas: int,
    verify: int,
) -> None:
    if steps < 0:
        raise BadInput(f"an attack needs steps of at least 0, got {steps}")
    if verify < replicas:
        raise BadInput(f"verify, the larger draw, must be at least the {replicas} replicas of the attack, got {verify}")
    images(x)
    if len(set(ids)) != len(x) or len(ids) != len(x):
        raise BadInput(f"{len(x)} images need as many different ids, got {len(ids)}, {len(set(ids))} of them different")
    labels(y, len(x), classes=classes(robust.classifier, x))
    _energy(robust, x)


def lengths(threat: Threat, step_size: float, x: Tensor) -> None:
    """The step and the radius of an attack, both in pixels of [0, 1]; whoever counts in 255 levels is told."""
    if not step_size > 0:
        raise BadInput(f"the step_size of an attack must be above 0, got {step_size}")
    if step_size > 2 * threat.radius:
        raise BadInput(
            f"step_size {step_size:g} leads across the whole ball of {threat}; it is in pixels of [0, 1]: "
            f"of 255 levels give {step_size:g}/255"
        )
    apart = x[0].numel() ** 0.5
    if threat.norm == "l2" and threat.radius > apart:
        raise BadInput(
            f"radius {threat.radius:g} of an l2 threat: two images of this size are at most {apart:.3g} apart, "
            "in pixels of [0, 1]"
        )


def loss(loss: Loss, classifier: nn.Module, x: Tensor, y: Tensor) -> None:
    """Whether it takes the classifier's logits, which some do not: dlr needs three classes."""
    with frozen(classifier, walking=False), torch.no_grad():
        loss(classifier(x[:1]), y[:1].to(x.device))


def images(x: Tensor) -> None:
    if x.ndim != 4 or not len(x) or not x.is_floating_point():
        raise BadInput(f"images are a float tensor (B, C, H, W) with B above 0, got {x.dtype} {tuple(x.shape)}")
    low, high = x.min().item(), x.max().item()
    if not (low >= -1 and high <= 1):  # NaN compares false
        raise BadInput(f"images must be in [-1, 1], got values from {low:g} to {high:g}; scale pixels by x / 127.5 - 1")


def labels(y: Tensor, images: int, *, classes: int) -> None:
    if y.shape != (images,) or y.is_floating_point():
        raise BadInput(f"{images} images need as many whole-numbered labels, got {y.dtype} {tuple(y.shape)}")
    least, most = int(y.min()), int(y.max())
    if least < 0 or most >= classes:
        raise BadInput(f"the classifier has classes 0 to {classes - 1}, the labels go from {least} to {most}")


def classes(classifier: nn.Module, x: Tensor) -> int:
    """How many the classifier knows, by its logits for one image."""
    try:
        with frozen(classifier, walking=False), torch.no_grad():
            logits = classifier(x[:1])
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        reason = " ".join(str(error).split())
        raise BadInput(f"the classifier does not take images of shape {tuple(x.shape[1:])}: {reason}") from error
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != 1:
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise BadInput(f"a classifier gives logits (B, classes), got {got} for one image")
    return logits.shape[1]


def fingerprints(robust: DefendedClassifier, x: Tensor, y: Tensor, ids: Sequence[int]) -> dict[str, Any]:
    """Names what is attacked, so that an attack is not gone on with at something else."""
    function = fingerprint.of_functions(robust.classifier, robust.purifier.energy)
    return {"images": fingerprint.of_tensors(x, y, torch.tensor(ids)), "model": function}


def _energy(robust: DefendedClassifier, x: Tensor) -> None:
    energy, one, shape = robust.purifier.energy, x[:1], tuple(x.shape[1:])
    if not robust.purifier.steps:
        return
    with frozen(energy):
        try:
            slope = gradient(energy, one)
        except (RuntimeError, ValueError, TypeError) as error:
            reason = " ".join(str(error).split())
            raise BadInput(f"the energy does not take images of shape {shape}: {reason}") from error
        if slope.shape != one.shape:
            raise BadInput(f"the energy's gradient has the shape {tuple(slope.shape[1:])} for an image of {shape}")
        if robust.gradient.walks:
            _curvature(robust, one)


def _curvature(robust: DefendedClassifier, one: Tensor) -> None:
    try:
        curvature(robust.purifier.energy, one, torch.zeros_like(one))
    except (RuntimeError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise BadInput(
            f"{robust.gradient.name} gradients go back through the chain, and the energy has no second derivative "
            f"({reason}); give it a method `curvature`, or attack it with bpda"
        ) from error
