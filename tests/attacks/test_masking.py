import torch
from torch import Tensor

from attacks.small import Linear, defended, images
from ebmlife.attacks import Threat, check_masking, gradient_norms
from ebmlife.defense import DefendedClassifier, Purifier
from ebmlife.energy import gaussian
from ebmlife.gradients import Full

SMALL = {"steps": 4, "replicas": 4, "verify": 8, "evaluations": 1}


def test_an_honest_defence_passes() -> None:
    x, y = images(40)
    checks = check_masking(defended(step_size=1e-3), x, y, threat=Threat("linf", 0.13), **SMALL)
    assert len(checks) == 7
    assert all(check.passed for check in checks), [str(check) for check in checks]
    assert all(str(check).startswith("pass  ") and check.reason for check in checks)


class Stairs(Linear):
    """The same predictions, from logits rounded to steps: its gradient is nothing."""

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        return logits.detach().sign() + 0 * logits


def test_a_masked_gradient_fails() -> None:
    x, y = images(40)
    purifier = Purifier(gaussian(1.0), steps=3, step_size=1e-3)
    robust = DefendedClassifier(Stairs(), purifier, replicas=4)
    checks = {check.name: check for check in check_masking(robust, x, y, threat=Threat("linf", 0.05), **SMALL)}
    assert not checks["a huge radius leaves nothing"].passed
    assert not checks["the full gradient survives the chain"].passed
    assert "0 for 8 of 8 images" in checks["the full gradient survives the chain"].reason
    assert str(checks["a huge radius leaves nothing"]).startswith("FAIL  ")


class Misleading(Linear):
    """The same predictions; but of images as rough as purified ones are, the gradient points the other way."""

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        rough = x.flatten(1).std(1, keepdim=True) > 0.2
        return torch.where(rough, 2 * logits.detach() - logits, logits)


def test_a_defence_that_misleads_loses_to_transfer() -> None:
    y = torch.tensor([1, 0]).repeat(5)
    x = (0.16 * y - 0.08).view(10, 1, 1, 1).expand(10, 1, 16, 16)
    robust = DefendedClassifier(Misleading(), Purifier(gaussian(10.0), steps=4, step_size=0.2), replicas=4)
    found = check_masking(robust, x, y, threat=Threat("linf", 0.06), step_size=0.06, **SMALL)
    checks = {check.name: check for check in found}
    check = checks["transfer never beats white-box"]
    assert not check.passed
    assert check.reason == "white-box 1.000 [0.722, 1.000], transfer 0.000 [0.000, 0.278]"


def test_gradient_norms_along_the_chain_in_closed_form() -> None:
    """Each segment of a Gaussian energy's chain multiplies |v| by (1 - a)^length."""
    x, y = images(5)
    purifier = Purifier(gaussian(0.5), steps=9, step_size=0.2)
    norms = gradient_norms(DefendedClassifier(Linear(), purifier), x, y, Full())
    assert norms.shape == (4, 5)
    torch.testing.assert_close(norms[1:] / norms[:-1], torch.full((3, 5), (1 - 0.2**2 / (2 * 0.25)) ** 3).double())
