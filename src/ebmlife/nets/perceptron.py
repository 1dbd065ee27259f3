"""Small fully connected energy and generator, for densities in a few dimensions."""

from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ebmlife.errors import at_least
from ebmlife.nets.activations import activation as activation_named
from ebmlife.sampling.energy import gradient

_OWN = "silu"  # the activation whose gradient is written out


class _Applied(nn.Module):
    """An activation as a layer."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self._function = name, activation_named(name)

    def forward(self, x: Tensor) -> Tensor:
        return self._function(x)


def _layers(inputs: int, width: int, depth: int, outputs: int, activation: str = _OWN) -> nn.Sequential:
    at_least(1, "net", width=width, depth=depth)
    widths = [inputs, *[width] * depth]
    hidden: list[nn.Module] = []
    for a, b in pairwise(widths):
        hidden += [nn.Linear(a, b), nn.SiLU() if activation == _OWN else _Applied(activation)]
    return nn.Sequential(*hidden, nn.Linear(width, outputs))


class PerceptronEnergy(nn.Module):
    """An energy of vectors or flattened images, smooth by default.

    With `fourier`, sin(Bx) and cos(Bx) are further inputs, where B is a fixed matrix of `fourier` rows from N(0,
    bandwidth^2): a plain perceptron takes far too long to learn shapes of a few hundredths of its inputs' range.
    """

    directions: Tensor | None  # (inputs, fourier)

    def __init__(
        self,
        shape: tuple[int, ...] = (2,),
        width: int = 128,
        depth: int = 3,
        fourier: int = 0,
        bandwidth: float = 6.0,  # angular frequency per unit: shapes of about 1 / bandwidth
        activation: str = _OWN,
    ) -> None:
        super().__init__()
        at_least(0, "net", fourier=fourier)
        inputs = prod(shape)
        self._own_gradient = activation == _OWN
        self.register_buffer("directions", bandwidth * torch.randn(inputs, fourier) if fourier else None)
        self.layers = _layers(inputs + 2 * fourier, width, depth, 1, activation)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        if self.directions is not None:
            angles = x @ self.directions
            x = torch.cat([x, angles.sin(), angles.cos()], dim=1)
        energy: Tensor = self.layers(x)
        return energy.squeeze(1)

    @torch.no_grad()
    def gradient(self, x: Tensor) -> Tensor:
        """grad E(x) without autograd, whose overhead is half the time of such a small network."""
        if not self._own_gradient:
            return gradient(self.forward, x)
        h = x.flatten(1)
        if self.directions is not None:
            angles = h @ self.directions
            sin, cos = angles.sin(), angles.cos()
            h = torch.cat([h, sin, cos], dim=1)
        *hidden, last = (layer for layer in self.layers if isinstance(layer, nn.Linear))
        before = []  # the input of each activation
        for layer in hidden:
            before.append(layer(h))
            h = F.silu(before[-1])
        grad = last.weight.expand(len(h), -1)
        for layer, h in zip(reversed(hidden), reversed(before), strict=True):
            grad = torch.ops.aten.silu_backward(grad, h) @ layer.weight
        if self.directions is not None:
            count = self.directions.shape[1]
            grad, of_sin, of_cos = grad.tensor_split((-2 * count, -count), dim=1)
            grad = grad + (of_sin * cos - of_cos * sin) @ self.directions.T
        return grad.view_as(x)


class PerceptronGenerator(nn.Module):
    def __init__(self, shape: tuple[int, ...] = (2,), width: int = 128, depth: int = 3, latent: int = 2) -> None:
        super().__init__()
        at_least(1, "generator", latent=latent)
        self.shape, self.latent = shape, latent
        self.layers = _layers(latent, width, depth, prod(shape))

    def forward(self, z: Tensor) -> Tensor:
        x: Tensor = self.layers(z)
        return x.view(-1, *self.shape)
