"""Small fully connected energy and generator, for densities in a few dimensions."""

from itertools import pairwise
from math import prod

from torch import Tensor, nn

from ebmlife.errors import at_least


def _layers(inputs: int, width: int, depth: int, outputs: int) -> nn.Sequential:
    at_least(1, "net", width=width, depth=depth)
    widths = [inputs, *[width] * depth]
    hidden = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.SiLU())]
    return nn.Sequential(*hidden, nn.Linear(width, outputs))


class PerceptronEnergy(nn.Module):
    """A smooth (SiLU) energy of vectors or flattened images."""

    def __init__(self, shape: tuple[int, ...] = (2,), width: int = 128, depth: int = 3) -> None:
        super().__init__()
        self.layers = _layers(prod(shape), width, depth, 1)

    def forward(self, x: Tensor) -> Tensor:
        energy: Tensor = self.layers(x.flatten(1))
        return energy.squeeze(1)


class PerceptronGenerator(nn.Module):
    def __init__(self, shape: tuple[int, ...] = (2,), width: int = 128, depth: int = 3, latent: int = 2) -> None:
        super().__init__()
        at_least(1, "generator", latent=latent)
        self.shape, self.latent = shape, latent
        self.layers = _layers(latent, width, depth, prod(shape))

    def forward(self, z: Tensor) -> Tensor:
        x: Tensor = self.layers(z)
        return x.view(-1, *self.shape)
