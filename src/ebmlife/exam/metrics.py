"""What is seen of states at one moment, cheap enough to be looked at often."""

import torch
from torch import Tensor

_PAIRED = 1000  # states whose pairs an exam compares: half a million distances tell enough


def outside(x: Tensor) -> float:
    """The share of values outside [-1, 1]."""
    return (x.abs() > 1).double().mean().item()


def contrast(x: Tensor) -> float:
    """Mean over images of the standard deviation of their pixels."""
    return x.double().flatten(1).std(1).mean().item()


def variation(x: Tensor) -> float:
    """Total variation of a pixel: mean |difference| of neighbours, across plus down."""
    across, down = x.diff(dim=-1).abs(), x.diff(dim=-2).abs()
    return (across.double().mean() + down.double().mean()).item()


def diversity(x: Tensor) -> float:
    """Mean Euclidean distance of pairs."""
    return torch.pdist(x.flatten(1)).mean().item()


def metrics_of(x: Tensor) -> dict[str, float]:
    """The figures that fit the states: those of pixels for images (B, C, H, W), diversity for all."""
    of_images = {"outside": outside, "contrast": contrast, "variation": variation} if x.ndim == 4 else {}
    if x.ndim == 4 and min(x.shape[-2:]) < 2:
        of_images = {"outside": outside}  # a line of pixels has no neighbours one way
    return {name: figure(x) for name, figure in of_images.items()} | {"diversity": diversity(x[:_PAIRED])}
