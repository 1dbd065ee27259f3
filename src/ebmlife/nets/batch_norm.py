"""Batch norm over the batches of several processes."""

import torch
from torch import Tensor, nn

from ebmlife.distributed import Ranks


class SharedBatchNorm(nn.BatchNorm2d):
    """Batch norm with the statistics of the batches of all ranks, which have one size, if a gradient is computed:

    mean = mean over ranks of mean(x), variance = mean over ranks of mean((x - mean)^2).

    Without a gradient each rank uses its own batch, because ranks initialize states at different times. The effect
    of such batches on the running statistics is averaged at the next gradient. (PyTorch's SyncBatchNorm would wait for
    the other ranks at each initialization, and runs on CUDA only.)
    """

    def __init__(self, like: nn.BatchNorm2d, ranks: Ranks) -> None:
        super().__init__(like.num_features, like.eps, like.momentum, device=like.weight.device)
        self.load_state_dict(like.state_dict())
        self.ranks = ranks

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and torch.is_grad_enabled()):
            return super().forward(x)
        mean = self._over_ranks(x.mean((0, 2, 3)))
        centered = x - mean[:, None, None]
        variance = self._over_ranks(centered.square().mean((0, 2, 3)))
        self._follow(mean.detach(), variance.detach(), values=self.ranks.count * x.numel() // self.num_features)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return centered * scale[:, None, None] + self.bias[:, None, None]

    def _over_ranks(self, local: Tensor) -> Tensor:
        mean: Tensor = _Sum.apply(local, self.ranks) / self.ranks.count
        return mean

    def _follow(self, mean: Tensor, variance: Tensor, *, values: int) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.momentum is not None
        self.ranks.average([self.running_mean, self.running_var])
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance * values / (values - 1), self.momentum)


class _Sum(torch.autograd.Function):
    """Sum over ranks. Each rank's value is part of every rank's loss, so that gradients are summed too."""

    @staticmethod
    def forward(ctx, x: Tensor, ranks: Ranks) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.ranks = ranks
        return ranks.sum(x)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        return ctx.ranks.sum(gradient.contiguous()), None


def share_batch_norm(net: nn.Module, ranks: Ranks) -> None:
    """Replaces every batch norm of the network by a SharedBatchNorm with the same weights."""
    for name, child in net.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(net, name, SharedBatchNorm(child, ranks))
        else:
            share_batch_norm(child, ranks)
