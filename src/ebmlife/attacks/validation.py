"""Mistakes that would cost hours, found before the first step."""

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

_ENOUGH = 4  # images, of which a classifier that fits is right about some


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


def lasting(loss: str | Loss, mode: Gradient) -> None:
    """Whether a folder can know them again: by text that means the same in every process."""
    if not isinstance(loss, str) and not _importable(loss):
        called = getattr(loss, "__qualname__", type(loss).__name__)
        raise BadInput(
            f"the loss {called} cannot be known again in a folder; make it a function of a module, "
            "or attack without a folder"
        )
    if " at 0x" in repr(mode):
        raise BadInput(
            f"the gradient {mode.name} cannot be known again in a folder: its repr is an address; make it a dataclass, "
            "or attack without a folder"
        )


def images(x: Tensor) -> None:
    if x.ndim != 4 or not len(x) or not x.is_floating_point():
        raise BadInput(f"images are a float tensor (B, C, H, W) with B above 0, got {x.dtype} {tuple(x.shape)}")
    low, high = x.min().item(), x.max().item()
    if not (low >= -1 and high <= 1):  # NaN compares false
        raise BadInput(f"images must be in [-1, 1], got values from {low:g} to {high:g}; scale pixels by x / 127.5 - 1")


def labels(y: Tensor, images: int, *, classes: int) -> None:
    if y.shape != (images,) or y.is_floating_point() or y.dtype == torch.bool:
        raise BadInput(f"{images} images need as many whole-numbered labels, got {y.dtype} {tuple(y.shape)}")
    least, most = int(y.long().min()), int(y.long().max())
    if least < 0 or most >= classes:
        raise BadInput(f"the classifier has classes 0 to {classes - 1}, the labels go from {least} to {most}")


def classes(classifier: nn.Module, x: Tensor) -> int:
    """How many the classifier knows, by its logits for one image."""
    shape = tuple(x.shape[1:])
    unfit = _said(lambda reason: f"the classifier does not take images of shape {shape}: {reason}")
    with unfit, frozen(classifier, walking=False), torch.no_grad():
        logits = classifier(x[:1])
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != 1:
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise BadInput(f"a classifier gives logits (B, classes), got {got} for one image")
    return logits.shape[1]


def _some_correct(robust: DefendedClassifier, x: Tensor, y: Tensor) -> None:
    """Whether the bare classifier is right about some image; where it is about none, hours would end at 0.000."""
    if len(x) < _ENOUGH:
        return
    at_once = robust.purifier.batch
    for seen, known in zip(torch.split(x, at_once), torch.split(y, at_once), strict=True):
        if (robust.classify(seen).argmax(1).cpu() == known.cpu()).any():
            return  # most often at the first few
    raise BadInput(
        f"the classifier alone is right about none of the {len(x)} images, so that nothing can be attacked; its "
        "classes are probably others than the labels': give it images of its own classes, or a classifier of these"
    )


def fingerprints(robust: DefendedClassifier, x: Tensor, y: Tensor, ids: Sequence[int]) -> dict[str, Any]:
    """Names what is attacked, so that an attack is not gone on with at something else."""
    function = fingerprint.of_functions(robust.classifier, robust.purifier.energy)
    return {"images": fingerprint.of_tensors(x, y, torch.tensor(ids)), "model": function}


def notes(robust: DefendedClassifier, x: Tensor) -> dict[str, str]:
    """What is no mistake, and yet should be known of an attack, as its setting `note`; {} if there is nothing."""
    mode, energy, called = attacked_through(robust.gradient), robust.purifier.energy, robust.gradient.name
    if not isinstance(mode, Smooth) or not robust.purifier.steps:
        return {}
    with frozen(energy, walking=False):
        kinks = mode.kinks(energy, x[:1])
    same = called.replace(Smooth.name, Full.name)
    return {} if kinks else {"note": f"{called} is {same} here: the energy has no ReLU for softplus to stand for"}


def masking(robust: DefendedClassifier, x: Tensor) -> None:
    """Whether the masking checks can look at an attack on this defence."""
    if isinstance(attacked_through(robust.gradient), Transfer):
        raise BadInput(
            f"masking checks compare with an attack that knows no defence, and {robust.gradient.name} is one; "
            "check another gradient, such as bpda"
        )
    images(x)
    _energy(robust, x)
    if robust.purifier.steps:
        _way_back(robust, x, who="masking checks", instead="leave them out")


def _energy(robust: DefendedClassifier, x: Tensor) -> None:
    energy, one, shape = robust.purifier.energy, x[:1], tuple(x.shape[1:])
    if not robust.purifier.steps:
        return
    with frozen(energy), _said(lambda reason: f"the energy does not take images of shape {shape}: {reason}"):
        grad = gradient(energy, one)
    if grad.shape != one.shape:
        raise BadInput(f"the energy's gradient has the shape {tuple(grad.shape[1:])} for an image of {shape}")
    if robust.gradient.walks:
        _way_back(robust, x, who=f"{robust.gradient.name} gradients", instead="attack it with bpda")
    mode = attacked_through(robust.gradient)
    if isinstance(mode, Smooth):
        _smoothed(energy, one, mode)


def _way_back(robust: DefendedClassifier, x: Tensor, *, who: str, instead: str) -> None:
    """Whether a gradient can pass the chain: `who` needs it, and can be done without by `instead`."""
    energy, one = robust.purifier.energy, x[:1]

    def said(reason: str) -> str:
        lacking = f"{who} go back through the chain, and the energy has no second derivative ({reason})"
        return f"{lacking}; give it a method `curvature`, or {instead}"

    with frozen(energy, walking=False), _said(said):
        curvature(energy, one, torch.zeros_like(one))


def _smoothed(energy: Energy, one: Tensor, mode: Smooth) -> None:
    """Kinks that are not found leave a Hessian of 0, and the gradient of bpda at many times its cost."""
    v = torch.randn(one.shape, generator=generator(0, "attack check")).to(one)
    with frozen(energy, walking=False):
        product = mode.curved(energy, one, v)
    if not product.any():
        raise BadInput(
            "the smooth gradient finds no curvature in the energy: it is linear, or its ReLUs are spelt in a way that "
            "softplus cannot stand for; spell them as F.relu, or attack it with bpda"
        )


def _importable(function: object) -> bool:
    module, path = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    try:
        return attrgetter(path)(sys.modules[str(module)]) is function
    except (KeyError, AttributeError):
        return False


@contextmanager
def _said(line: Callable[[str], str]) -> Iterator[None]:
    """BadInput, with a line for the reason, in place of what a network raises at images that it does not take."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BadInput(line(reason)) from error
