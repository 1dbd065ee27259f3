"""Glow (Kingma and Dhariwal 2018) from normflows, as an energy and as a generator."""

from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from ebmlife.errors import BadInput, at_least


def _normflows() -> Any:
    try:
        import normflows
    except ImportError as error:
        raise BadInput("a Glow needs normflows: pip install ebmlife[flows]") from error
    return normflows


class Glow(nn.Module):
    """E(x) = -log density of a multiscale Glow with a standard normal base: (B, C, size, size) -> (B,).

    The first batch initializes its activation norms, as in Glow.
    """

    def __init__(self, size: int = 32, channels: int = 3, *, scales: int = 2, depth: int = 8, width: int = 64) -> None:
        super().__init__()
        at_least(1, "net", scales=scales, depth=depth, width=width)
        if size % 2**scales:
            raise BadInput(f"net.scales {scales} is too large for images of {size}x{size}; make it smaller")
        nf, flows, self.latents = _normflows(), [], []
        for scale in range(scales):  # from the coarsest to the finest
            halvings = scales - scale
            wide = channels * 2 ** (halvings + 1)  # channels of the flow's steps
            steps = [nf.flows.GlowBlock(wide, width, split_mode="channel", use_lu=False) for _ in range(depth)]
            flows.append([*steps, nf.flows.Squeeze()])
            split = wide if scale == 0 else wide // 2
            self.latents.append((split, size // 2**halvings, size // 2**halvings))
        bases = [nf.distributions.DiagGaussian(shape, trainable=False) for shape in self.latents]
        merges = [nf.flows.Merge() for _ in range(scales - 1)]
        self.flow = nf.MultiscaleFlow(bases, flows, merges, class_cond=False)

    def forward(self, x: Tensor) -> Tensor:
        energy: Tensor = -self.flow.log_prob(x, None)
        return energy

    def generate(self, z: Tensor) -> Tensor:
        """Returns the images of latents (B, C * size * size) under the inverse of the flow."""
        parts = torch.split(z, [prod(shape) for shape in self.latents], 1)
        shaped = [part.view(-1, *shape) for part, shape in zip(parts, self.latents, strict=True)]
        x: Tensor = self.flow.forward_and_log_det(shaped)[0]
        return x


class GlowGenerator(nn.Module):
    """The inverse of a flow, from latents to images. It gives exact samples of the flow's density."""

    def __init__(self, glow: Glow) -> None:
        super().__init__()
        self.glow, self.latent = glow, sum(prod(shape) for shape in glow.latents)

    def forward(self, z: Tensor) -> Tensor:
        return self.glow.generate(z)
