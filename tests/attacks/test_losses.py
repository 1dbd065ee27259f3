import math

import pytest
import torch

from ebmlife.attacks import LOSSES, cross_entropy, dlr, margin
from ebmlife.attacks.losses import find
from ebmlife.errors import BadInput

LOGITS, Y = torch.tensor([[3.0, 1.0, 0.0, -2.0], [0.5, 2.0, 1.0, 1.5]]), torch.tensor([0, 3])


def test_values_by_hand() -> None:
    torch.testing.assert_close(margin(LOGITS, Y), torch.tensor([-2.0, 0.5]))
    torch.testing.assert_close(dlr(LOGITS, Y), torch.tensor([-2 / 3, 0.5]))
    logits = LOGITS.double()
    torch.testing.assert_close(cross_entropy(LOGITS, Y), logits.logsumexp(1) - logits.gather(1, Y[:, None])[:, 0])


def test_confidence_leaves_a_gradient() -> None:
    """At a margin of 25, p_y - 1 = -e^-25 / (1 + e^-25), which is 0 in float32."""
    leaf = torch.tensor([[25.0, 0.0]], requires_grad=True)
    cross_entropy(leaf, torch.tensor([0])).sum().backward()
    assert leaf.grad is not None
    torch.testing.assert_close(leaf.grad, torch.tensor([[-1.0, 1.0]]) * math.exp(-25), rtol=1e-4, atol=0)


@pytest.mark.parametrize("confidence", [40.0, 200.0, 2000.0])
def test_no_confidence_is_too_large_for_a_direction(confidence: float) -> None:
    """That of the gradient, softmax over the others minus one at the right class; e^-200 is 0 in float32."""
    leaf = torch.tensor([[confidence, 0.0, -1.0]], requires_grad=True)
    cross_entropy(leaf, torch.tensor([0])).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.isfinite().all()
    share = 1 / (1 + math.exp(-1))
    torch.testing.assert_close(leaf.grad / leaf.grad[0, 0].abs(), torch.tensor([[-1.0, share, 1 - share]]))


def test_dlr_has_no_scale() -> None:
    torch.testing.assert_close(dlr(1000 * LOGITS, Y), dlr(LOGITS, Y))


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_all_grow_as_the_right_logit_falls(loss: object) -> None:
    leaf = LOGITS.clone().requires_grad_()
    loss(leaf, Y).sum().backward()  # type: ignore[operator]
    assert leaf.grad is not None
    assert (leaf.grad.gather(1, Y[:, None]) < 0).all()


def test_mistakes() -> None:
    with pytest.raises(BadInput, match="at least 3 classes, got 2; use the margin loss"):
        dlr(torch.zeros(1, 2), torch.tensor([0]))
    with pytest.raises(BadInput, match="unknown loss 'marigin'; did you mean 'margin'"):
        find("marigin")
    assert find(margin) is margin
