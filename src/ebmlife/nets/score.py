"""A small score network: a U-Net of residual blocks, conditioned on the noise level."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ebmlife.errors import BadInput, at_least

_COARSEST = 4  # pixels


class _Block(nn.Module):
    """x + conv(silu(norm(conv(silu(norm(x)))))), the shortcut 1x1 where the width changes."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norm_1, self.conv_1 = _norm(inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm_2, self.conv_2 = _norm(outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.sc = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.conv_1(F.silu(self.norm_1(x)))
        h = self.conv_2(F.silu(self.norm_2(h)))
        x = self.sc(x)
        return h + x


def _norm(width: int) -> nn.GroupNorm:
    return nn.GroupNorm(max(groups for groups in range(1, 9) if width % groups == 0), width)


class _Level(nn.Module):
    """One resolution of the U-Net: a block, all coarser resolutions, and a block that combines both outputs."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.before = _Block(width, width)
        self.below = _Level(size // 2, width) if size > _COARSEST and size % 2 == 0 else None
        self.after = _Block(width if self.below is None else 2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.before(x)
        if self.below is not None:
            low = self.below(F.avg_pool2d(h, 2))
            h = torch.cat([h, F.interpolate(low, scale_factor=2, mode="nearest")], 1)
        out: Tensor = self.after(h)
        return out


class ScoreNet(nn.Module):
    """s(x, sigma) = -e(x / sqrt(1 + sigma^2), log sigma) / sigma, where e predicts the noise, of the shape of x.

    The noise level is a further, constant channel.
    """

    def __init__(self, size: int = 32, width: int = 64, channels: int = 3) -> None:
        super().__init__()
        at_least(1, "net", width=width)
        if size != 28 and (size < _COARSEST or size & (size - 1)):
            raise BadInput(f"score networks need a size of 28, or a power of 2 and at least {_COARSEST}, not {size}")
        self.inner = nn.Sequential(nn.Conv2d(channels + 1, width, 3, padding=1), _Level(size, width))
        self.out = nn.Sequential(_norm(width), nn.SiLU(), nn.Conv2d(width, channels, 3, padding=1))

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        sigma = sigma.view(-1, 1, 1, 1)
        level = (sigma.log() / 4).expand(-1, 1, *x.shape[2:])
        predicted: Tensor = self.out(self.inner(torch.cat([x / (1 + sigma.square()).sqrt(), level], 1)))
        return -predicted / sigma
