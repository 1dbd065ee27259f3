"""What an attack drives up: losses (B,) of averaged logits (B, classes)."""

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

from ebmlife.errors import BadInput, nearest

Loss = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """In float64: of a confident classifier p_y - 1, the gradient at its logit, would round to 0."""
    return F.cross_entropy(logits.double(), y, reduction="none")


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


def find(loss: str | Loss) -> Loss:
    if not isinstance(loss, str):
        return loss
    if loss not in LOSSES:
        raise BadInput(f"unknown loss {loss!r}{nearest(loss, LOSSES)}")
    return LOSSES[loss]
