"""Losses (B,) of averaged logits (B, classes), which attacks maximize. A new one needs a function, and a line in the
table `LOSSES`."""

from collections.abc import Callable
from math import exp

import torch
from torch import Tensor
from torch.nn import functional as F

from ebmlife.errors import BadInput, by_name

Loss = Callable[[Tensor, Tensor], Tensor]
_FLAT = -40.0  # gradients of size e^-40 pass a classifier in float32; those of size e^-103 would become 0


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Returns log(1 + e^d), with d the logsumexp of the other logits minus the logit of y, in float64.

    This form keeps a gradient for a confident classifier, where p_y - 1 would round to 0. Below d = -40 the gradient
    keeps its direction and has the size e^-40: the length of an attack step does not depend on it.

    Args:
        logits: Logits (B, classes).
        y: Labels (B,).
    """
    wide = logits.double()
    others = wide.scatter(1, y[:, None], float("-inf")).logsumexp(1)
    d = others - wide.gather(1, y[:, None]).squeeze(1)
    loss = F.softplus(d)
    return torch.where(d > _FLAT, loss, loss.detach() + exp(_FLAT) * (d - d.detach()))


def margin(logits: Tensor, y: Tensor) -> Tensor:
    """Returns max over k != y of z_k, minus z_y: above 0 where the prediction is wrong.

    Args:
        logits: Logits z (B, classes).
        y: Labels (B,).
    """
    correct = logits.gather(1, y[:, None]).squeeze(1)
    return logits.scatter(1, y[:, None], float("-inf")).amax(1) - correct


def dlr(logits: Tensor, y: Tensor) -> Tensor:
    """Returns the margin divided by the difference of the largest and the third largest logit.

    The scale of the logits does not change it.

    Args:
        logits: Logits (B, classes), of at least 3 classes.
        y: Labels (B,).
    """
    if logits.shape[1] < 3:
        raise BadInput(f"the dlr loss needs at least 3 classes, got {logits.shape[1]}; use the margin loss")
    first, _, third = logits.topk(3, dim=1).values.unbind(1)
    return margin(logits, y) / (first - third + 1e-12)


LOSSES: dict[str, Loss] = {"cross-entropy": cross_entropy, "margin": margin, "dlr": dlr}


def name(loss: str | Loss) -> str:
    """Returns the name of the loss in a record."""
    if isinstance(loss, str):
        return loss
    if any(loss is known for known in LOSSES.values()):
        return loss.__name__
    path = getattr(loss, "__qualname__", None)
    return repr(loss) if path is None else f"{loss.__module__}.{path}"


def find(loss: str | Loss) -> Loss:
    """Returns the loss of that name, or the function itself."""
    return by_name(LOSSES, loss, "loss") if isinstance(loss, str) else loss
