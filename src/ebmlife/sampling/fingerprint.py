"""Fingerprints of tensors and functions, so that resumed work is never continued with different inputs."""

import hashlib

import torch
from torch import Tensor, nn

from ebmlife.sampling.energy import Energy, frozen, gradient

_PROBED = 4  # states


def of_tensors(*tensors: Tensor, text: str = "") -> str:
    """Returns 12 hexadecimal digits that depend on the tensors' bytes and on `text`."""
    digest = hashlib.sha256(text.encode())
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:12]


def of_functions(*functions: object) -> str:
    """Returns a fingerprint of modules: their weights, classes and plain attributes. Other callables are ignored."""
    modules = [function for function in functions if isinstance(function, nn.Module)]
    tensors = [tensor for module in modules for _, tensor in _held(module)]
    return of_tensors(*tensors, text=repr([_form(module) for module in modules]))


def of_gradient(energy: Energy, x: Tensor) -> list[float]:
    """Returns |grad E| at the first states of a batch, which identifies energies that are closures."""
    with frozen(energy):
        lengths: list[float] = gradient(energy, x)[:_PROBED].flatten(1).double().norm(dim=1).tolist()
    return lengths


def _held(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Returns all parameters and buffers, also non-persistent ones: some hold a classifier's input scaling."""
    return sorted([*module.named_parameters(), *module.named_buffers()], key=lambda item: item[0])


def _form(module: nn.Module) -> list[tuple[str, str, list[tuple[str, object]]]]:
    """Returns the path, class and plain attributes of all submodules, such as temperature, tau and strides."""
    return [(path, _class_name(part), _numbers(part)) for path, part in module.named_modules()]


def _class_name(part: nn.Module) -> str:
    """Returns the name of a module's class, or the one that it declares because saved fingerprints contain it."""
    return str(getattr(part, "_saved_class_name", type(part).__qualname__))


def _numbers(part: nn.Module) -> list[tuple[str, object]]:
    public = {name: value for name, value in vars(part).items() if not name.startswith("_") and name != "training"}
    return sorted((name, value) for name, value in public.items() if _plain(value))


def _plain(value: object) -> bool:
    """Whether the representation of a value is the same in every process."""
    return isinstance(value, int | float | str) or (isinstance(value, tuple) and all(map(_plain, value)))
