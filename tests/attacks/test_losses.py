import pytest
import torch

from ebmlife.attacks import LOSSES, cross_entropy, dlr, margin
from ebmlife.attacks.losses import find
from ebmlife.errors import BadInput

LOGITS, Y = torch.tensor([[3.0, 1.0, 0.0, -2.0], [0.5, 2.0, 1.0, 1.5]]), torch.tensor([0, 3])


def test_values_by_hand() -> None:
    torch.testing.assert_close(margin(LOGITS, Y), torch.tensor([-2.0, 0.5]))
    torch.testing.assert_close(dlr(LOGITS, Y), torch.tensor([-2 / 3, 0.5]))
    torch.testing.assert_close(cross_entropy(LOGITS, Y), LOGITS.logsumexp(1) - LOGITS.gather(1, Y[:, None])[:, 0])


def test_dlr_has_no_scale() -> None:
    torch.testing.assert_close(dlr(1000 * LOGITS, Y), dlr(LOGITS, Y))


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_all_grow_as_the_right_logit_falls(loss: object) -> None:
    leaf = LOGITS.clone().requires_grad_()
    loss(leaf, Y).sum().backward()  # type: ignore[operator]
    assert leaf.grad is not None
    assert (leaf.grad.gather(1, Y[:, None]) < 0).all()


def test_mistakes() -> None:
    with pytest.raises(BadInput, match="at least 3 classes, got 2; use margin"):
        dlr(torch.zeros(1, 2), torch.tensor([0]))
    with pytest.raises(BadInput, match="unknown loss 'marigin'; did you mean 'margin'"):
        find("marigin")
    assert find(margin) is margin
