"""Fingerprints of tensors and functions, so that resumed work is never continued with different inputs."""

import hashlib

import torch
from torch import Tensor, nn

from ebmlife.sampling.energy import Energy, frozen, gradient

_PROBED = 4  # states


def of_tensors(*tensors: Tensor, said: str = "") -> str:
    digest = hashlib.sha256(said.encode())
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:12]


def of_functions(*functions: object) -> str:
    """By the weights of those that are modules, and by all else that makes them; of others nothing can be known."""
    modules = [function for function in functions if isinstance(function, nn.Module)]
    tensors = [tensor for module in modules for _, tensor in _held(module)]
    return of_tensors(*tensors, said=repr([_form(module) for module in modules]))


def of_gradient(energy: Energy, x: Tensor) -> list[float]:
    """|grad E| of the first states of a batch: a closure, or whatever holds a list, is known by what it does."""
    with frozen(energy):
        lengths: list[float] = gradient(energy, x)[:_PROBED].flatten(1).double().norm(dim=1).tolist()
    return lengths


def _held(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Parameters and buffers, also those that are no part of a state dict: a classifier's scaling is in some."""
    return sorted([*module.named_parameters(), *module.named_buffers()], key=lambda item: item[0])


def _form(module: nn.Module) -> list[tuple[str, str, list[tuple[str, object]]]]:
    """Its parts, by path and class, with temperature, tau, strides, sizes: what makes a function and is no tensor."""
    return [(path, type(part).__qualname__, _numbers(part)) for path, part in module.named_modules()]


def _numbers(part: nn.Module) -> list[tuple[str, object]]:
    public = {name: value for name, value in vars(part).items() if not name.startswith("_") and name != "training"}
    return sorted((name, value) for name, value in public.items() if _plain(value))


def _plain(value: object) -> bool:
    """Whether its text is the same in every process."""
    return isinstance(value, int | float | str) or (isinstance(value, tuple) and all(map(_plain, value)))
