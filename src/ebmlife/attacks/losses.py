"""What an attack drives up: losses (B,) of averaged logits (B, classes)."""

from collections.abc import Callable
from math import exp

import torch
from torch import Tensor
from torch.nn import functional as F

from ebmlife.errors import BadInput, nearest

Loss = Callable[[Tensor, Tensor], Tensor]
_FLAT = -40.0  # float32 holds what a classifier makes of e^-40; the slope e^-103 itself would be 0 there


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """log(1 + e^d), d being the logsumexp of the other logits minus the right one, in float64.

    So written, a confident classifier leaves a slope, where p_y - 1 rounds to 0. Below d = -40 the slope keeps its
    direction and is taken for e^-40: the steps of an attack have a length of their own.
    """
    wide = logits.double()
    others = wide.scatter(1, y[:, None], float("-inf")).logsumexp(1)
    d = others - wide.gather(1, y[:, None]).squeeze(1)
    loss = F.softplus(d)
    return torch.where(d > _FLAT, loss, loss.detach() + exp(_FLAT) * (d - d.detach()))


def margin(logits: Tensor, y: Tensor) -> Tensor:
    """max over k != y of z_k, minus z_y: above 0 where the prediction is wrong."""
    right = logits.gather(1, y[:, None]).squeeze(1)
    return logits.scatter(1, y[:, None], float("-inf")).amax(1) - right


def dlr(logits: Tensor, y: Tensor) -> Tensor:
    """The margin divided by the distance of the largest and the third largest logit: no scale of logits hides it."""
    if logits.shape[1] < 3:
        raise BadInput(f"the dlr loss needs at least 3 classes, got {logits.shape[1]}; use margin")
    first, _, third = logits.topk(3, dim=1).values.unbind(1)
    return margin(logits, y) / (first - third + 1e-12)


LOSSES: dict[str, Loss] = {"cross-entropy": cross_entropy, "margin": margin, "dlr": dlr}


def name(loss: str | Loss) -> str:
    """What a record calls it."""
    if isinstance(loss, str):
        return loss
    if any(loss is known for known in LOSSES.values()):
        return loss.__name__
    path = getattr(loss, "__qualname__", None)
    return repr(loss) if path is None else f"{loss.__module__}.{path}"


def find(loss: str | Loss) -> Loss:
    if not isinstance(loss, str):
        return loss
    if loss not in LOSSES:
        raise BadInput(f"unknown loss {loss!r}{nearest(loss, LOSSES)}")
    return LOSSES[loss]
