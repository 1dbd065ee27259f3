"""Validates the inputs of an attack before its first step."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from ebmlife.attacks import losses
from ebmlife.attacks.config import AttackConfig
from ebmlife.attacks.losses import Loss
from ebmlife.attacks.threat import Threat
from ebmlife.defense.defended import DefendedClassifier
from ebmlife.defense.gradients import Full, Gradient, Smooth, Transfer, attacked_through
from ebmlife.errors import BadInput
from ebmlife.sampling import fingerprint
from ebmlife.sampling.energy import Energy, curvature, frozen, gradient
from ebmlife.sampling.rng import generator

_ENOUGH = 4  # images: a suitable classifier is right about at least one of this many


def attack(robust: DefendedClassifier, x: Tensor, y: Tensor, ids: Sequence[int], config: AttackConfig) -> None:
    """Raises BadInput unless the model, the images and the configuration fit each other."""
    images(x)
    if len(set(ids)) != len(x) or len(ids) != len(x):
        raise BadInput(f"{len(x)} images need as many different ids, got {len(ids)}, {len(set(ids))} of them different")
    labels(y, len(x), classes=classes(robust.classifier, x))
    _some_correct(robust, x, y)
    _energy(robust, x)
    _radius(config.threat, x)
    _loss(config.loss, robust.classifier, x, y)


def _radius(threat: Threat, x: Tensor) -> None:
    diagonal = x[0].numel() ** 0.5
    if threat.norm == "l2" and threat.radius > diagonal:
        raise BadInput(
            f"radius {threat.radius:g} of an l2 threat: two images of this size are at most {diagonal:.3g} apart, "
            "in pixels of [0, 1]"
        )


def _loss(loss: str | Loss, classifier: nn.Module, x: Tensor, y: Tensor) -> None:
    """Raises BadInput if the loss does not take the classifier's logits: dlr needs three classes."""
    with frozen(classifier, walking=False), torch.no_grad():
        losses.find(loss)(classifier(x[:1]), y[:1].long().to(x.device))


def require_lasting_names(loss: str | Loss, mode: Gradient) -> None:
    """Raises BadInput unless the loss and the gradient have names that mean the same in every process."""
    if not isinstance(loss, str) and not _importable(loss):
        name = getattr(loss, "__qualname__", type(loss).__name__)
        raise BadInput(
            f"the loss {name} cannot be identified in a folder; make it a function of a module, "
            "or attack without a folder"
        )
    if " at 0x" in repr(mode):
        raise BadInput(
            f"the gradient {mode.name} cannot be identified in a folder: its repr is an address; make it a dataclass, "
            "or attack without a folder"
        )


def images(x: Tensor) -> None:
    """Raises BadInput unless x are images in [-1, 1]."""
    if x.ndim != 4 or not len(x) or not x.is_floating_point():
        raise BadInput(f"images must be a float tensor (B, C, H, W) with B above 0, got {x.dtype} {tuple(x.shape)}")
    low, high = x.min().item(), x.max().item()
    if not (low >= -1 and high <= 1):  # NaN compares false
        raise BadInput(f"images must be in [-1, 1], got values from {low:g} to {high:g}; scale pixels by x / 127.5 - 1")


def labels(y: Tensor, images: int, *, classes: int) -> None:
    """Raises BadInput unless y are labels of these classes, one for each image."""
    if y.shape != (images,) or y.is_floating_point() or y.dtype == torch.bool:
        raise BadInput(f"{images} images need as many integer labels, got {y.dtype} {tuple(y.shape)}")
    least, most = int(y.long().min()), int(y.long().max())
    if least < 0 or most >= classes:
        raise BadInput(f"the classifier has classes 0 to {classes - 1}, but the labels go from {least} to {most}")


def classes(classifier: nn.Module, x: Tensor) -> int:
    """Returns the number of classes of a classifier: that of its logits for one image."""
    shape = tuple(x.shape[1:])
    unfit = _explained(lambda reason: f"the classifier does not take images of shape {shape}: {reason}")
    with unfit, frozen(classifier, walking=False), torch.no_grad():
        logits = classifier(x[:1])
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != 1:
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise BadInput(f"a classifier must return logits (B, classes), got {got} for one image")
    return logits.shape[1]


def _some_correct(robust: DefendedClassifier, x: Tensor, y: Tensor) -> None:
    """Raises BadInput if the bare classifier is wrong about every image: an attack would end at 0.000 after hours."""
    if len(x) < _ENOUGH:
        return
    at_once = robust.purifier.batch
    for images, labels in zip(torch.split(x, at_once), torch.split(y, at_once), strict=True):
        if (robust.classify(images).argmax(1).cpu() == labels.cpu()).any():
            return  # usually after the first batch
    raise BadInput(
        f"the classifier alone is right about none of the {len(x)} images, so there is nothing to attack; the labels "
        "probably belong to other classes: give images of the classifier's classes, or another classifier"
    )


def fingerprints(robust: DefendedClassifier, x: Tensor, y: Tensor, ids: Sequence[int]) -> dict[str, Any]:
    """Returns fingerprints of the images and the model: resumed work is never continued with different inputs."""
    function = fingerprint.of_functions(robust.classifier, robust.purifier.energy)
    return {"images": fingerprint.of_tensors(x, y, torch.tensor(ids)), "model": function}


def notes(robust: DefendedClassifier, x: Tensor) -> dict[str, str]:
    """Returns {"note": ...} if an attack is not what its name suggests, else {}."""
    mode, energy, name = attacked_through(robust.gradient), robust.purifier.energy, robust.gradient.name
    if not isinstance(mode, Smooth) or not robust.purifier.steps:
        return {}
    with frozen(energy, walking=False):
        kinks = mode.kinks(energy, x[:1])
    same = name.replace(Smooth.name, Full.name)
    return {} if kinks else {"note": f"{name} is {same} here: the energy has no ReLU that softplus could replace"}


def masking(robust: DefendedClassifier, x: Tensor) -> None:
    """Raises BadInput unless the masking checks can be made for this defense."""
    if isinstance(attacked_through(robust.gradient), Transfer):
        raise BadInput(
            f"masking checks compare with an attack that does not know the defense, and {robust.gradient.name} is one; "
            "check another gradient, such as bpda"
        )
    images(x)
    _energy(robust, x)
    if robust.purifier.steps:
        _check_backward(robust, x, who="masking checks", instead="leave them out")


def _energy(robust: DefendedClassifier, x: Tensor) -> None:
    energy, one, shape = robust.purifier.energy, x[:1], tuple(x.shape[1:])
    if not robust.purifier.steps:
        return
    with frozen(energy), _explained(lambda reason: f"the energy does not take images of shape {shape}: {reason}"):
        grad = gradient(energy, one)
    if grad.shape != one.shape:
        raise BadInput(f"the energy's gradient has the shape {tuple(grad.shape[1:])} for an image of {shape}")
    if robust.gradient.walks:
        _check_backward(robust, x, who=f"{robust.gradient.name} gradients", instead="attack with bpda")
    mode = attacked_through(robust.gradient)
    if isinstance(mode, Smooth):
        _smoothed(energy, one, mode)


def _check_backward(robust: DefendedClassifier, x: Tensor, *, who: str, instead: str) -> None:
    """Raises BadInput, with the advice `instead`, unless gradients can pass the chain, which `who` need."""
    energy, one = robust.purifier.energy, x[:1]

    def explain(reason: str) -> str:
        problem = f"{who} go back through the chain, but the energy has no second derivative ({reason})"
        return f"{problem}; give it a method `curvature`, or {instead}"

    with frozen(energy, walking=False), _explained(explain):
        curvature(energy, one, torch.zeros_like(one))


def _smoothed(energy: Energy, one: Tensor, mode: Smooth) -> None:
    """Raises BadInput if softplus replaces nothing: with a Hessian of 0 this is bpda, at many times its cost."""
    v = torch.randn(one.shape, generator=generator(0, "attack check")).to(one)
    with frozen(energy, walking=False):
        product = mode.curved(energy, one, v)
    if not product.any():
        raise BadInput(
            "the smooth gradient finds no curvature in the energy: it is linear, or its ReLUs are written so that "
            "softplus cannot replace them; write them as F.relu, or attack with bpda"
        )


def _importable(function: object) -> bool:
    module, path = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    try:
        return attrgetter(path)(sys.modules[str(module)]) is function
    except (KeyError, AttributeError):
        return False


@contextmanager
def _explained(line: Callable[[str], str]) -> Iterator[None]:
    """Turns the errors of a network for images of the wrong shape into BadInput with one line."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BadInput(line(reason)) from error
