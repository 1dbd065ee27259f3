"""A defense so small that an attack on it takes a moment, and so simple that its answers are known."""

import torch
from torch import Tensor, nn

from ebmlife.defense import DefendedClassifier, Purifier
from ebmlife.defense.gradients import Gradient
from ebmlife.sampling.energy import gaussian


class Linear(nn.Module):
    """Logits (0, m, -1) with m the mean pixel times `scale`: class 1 above 0, class 0 below; class 2 never."""

    def __init__(self, scale: float = 4.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, x: Tensor) -> Tensor:
        m = self.scale * x.flatten(1).mean(1)
        return torch.stack([torch.zeros_like(m), m, torch.full_like(m, -1.0)], 1)


def images(n: int = 6, *, size: int = 4) -> tuple[Tensor, Tensor]:
    """Flat images of means from 0.05 to 0.5 in [-1, 1], above 0 and below in turn, and their classes."""
    means = torch.linspace(0.05, 0.5, n) * torch.tensor([1.0, -1.0]).repeat(n)[:n]
    return means.view(-1, 1, 1, 1).expand(n, 1, size, size).contiguous(), (means > 0).long()


def defended(
    gradient: str | Gradient = "bpda", *, steps: int = 3, step_size: float = 0.05, batch: int = 32
) -> DefendedClassifier:
    purifier = Purifier(gaussian(1.0), steps=steps, step_size=step_size, batch=batch)
    return DefendedClassifier(Linear(), purifier, replicas=4, gradient=gradient)


def digits_net() -> nn.Module:
    """A classifier of 8x8 digits that has learned nothing, as package.module:function."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    net.classes = 10  # type: ignore[assignment]
    return net


def colour_net() -> nn.Module:
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 10))
    net.classes = 10  # type: ignore[assignment]
    return net


def thousand_net() -> nn.Module:
    """A classifier of 8x8 digits as if they were ImageNet."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 1000))
