"""Activations of energies, by name. All of them run in the compiled program too.

An energy with a smooth activation has a smooth gradient, so that the exact gradient through its chains is more
informative than BPDA.
"""

from collections.abc import Callable

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from ebmlife.errors import by_name
from ebmlife.sampling.native.steps import SOFT_LEAKY_RELU

Activation = Callable[[Tensor], Tensor]
_SLOPE = 0.2  # of the leaky ReLU below 0
_ALPHA, _EPSILON = 0.49, 0.01


def soft_leaky_relu(x: Tensor, alpha: float = _ALPHA, epsilon: float = _EPSILON) -> Tensor:
    """(1 - alpha) x + alpha sqrt(x^2 + epsilon^2) - alpha epsilon: a leaky ReLU of slope 1 - 2 alpha, rounded at 0."""
    return (1 - alpha) * x + alpha * (torch.sqrt(x * x + epsilon * epsilon) - epsilon)


fx.wrap("soft_leaky_relu")  # so that a trace shows the function, not its square root
SOFT_LEAKY_RELU.append(soft_leaky_relu)


def _leaky(x: Tensor) -> Tensor:
    return F.leaky_relu(x, _SLOPE)


def _soft_leaky(x: Tensor) -> Tensor:
    return soft_leaky_relu(x, _ALPHA, _EPSILON)


ACTIVATIONS: dict[str, Activation] = {
    "relu": F.relu,
    "leaky-relu": _leaky,
    "silu": F.silu,
    "softplus": F.softplus,
    "soft-leaky-relu": _soft_leaky,
}


def activation(name: str) -> Activation:
    """Returns the activation of that name, a function of tensors; one of `ACTIVATIONS`."""
    return by_name(ACTIVATIONS, name, "net.activation")
