from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attacks.small import Linear, defended, images
from ebmlife.attacks import Record, Threat, check_masking, evaluate, gradient_norms, masking
from ebmlife.defense import DefendedClassifier, Purifier
from ebmlife.defense.gradients import Fixed, Full, Transfer
from ebmlife.errors import BadInput
from ebmlife.sampling.energy import Score, gaussian

SMALL: dict[str, Any] = {"steps": 4, "replicas": 4, "verify": 8, "evaluations": 1}


def test_an_honest_defense_passes() -> None:
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


def test_a_defense_that_misleads_loses_to_transfer() -> None:
    y = torch.tensor([1, 0]).repeat(5)
    x = (0.16 * y - 0.08).view(10, 1, 1, 1).expand(10, 1, 16, 16)
    robust = DefendedClassifier(Misleading(), Purifier(gaussian(10.0), steps=4, step_size=0.2), replicas=4)
    found = check_masking(robust, x, y, threat=Threat("linf", 0.06), step_size=0.06, **SMALL)
    checks = {check.name: check for check in found}
    check = checks["transfer never beats white-box"]
    assert not check.passed
    assert check.reason == "white-box 1.000 [0.722, 1.000], transfer 0.000 [0.000, 0.278]"


def test_a_confident_classifier_is_not_taken_for_a_masked_one() -> None:
    x, y = images(5)[0].abs(), torch.ones(5, dtype=torch.int32)
    robust = DefendedClassifier(Linear(4000.0), Purifier(gaussian(1.0), steps=4, step_size=1e-3))
    norms = gradient_norms(robust, x, y, Full())
    assert (norms > 0).all()
    assert norms.isfinite().all()


def test_the_largest_radius_is_named_as_it_is() -> None:
    x, y = images(6)
    checks = check_masking(defended(step_size=1e-3), x, y, threat="linf:0.6", **SMALL)
    assert "at 0.6; expected about 0" in checks[1].reason
    assert "at 0.5" in checks[0].reason


@pytest.mark.parametrize(("gradient", "unaware"), [("bpda", "transfer"), ("fixed", "fixed-transfer")])
def test_attackers_without_the_defense_know_as_much_of_the_noise(gradient: str, unaware: str, tmp_path: Path) -> None:
    x, y = images(6)
    check_masking(defended(gradient, step_size=0.3), x, y, threat=Threat("linf", 0.1), folder=str(tmp_path), **SMALL)
    record = Record.load(tmp_path / unaware)
    assert record.settings["gradient"] == unaware
    tally = record.tally
    doubtful = tally.verified != -1
    assert torch.equal(tally.verified[doubtful], tally.attacked[doubtful]) == (gradient == "fixed")


def test_transfer_with_known_noise_climbs_the_bare_classifiers_loss() -> None:
    """As without: where the first step leads does not depend on what the defense predicts."""
    torch.manual_seed(0)
    linear, x = nn.Linear(16, 3), 2 * torch.rand(40, 1, 4, 4) - 1
    linear.weight.data *= 5  # the gradient at the logits leads to the runner-up, which differs for the defense
    classifier = nn.Sequential(nn.Flatten(), linear)
    y = classifier(x).argmax(1)
    purifier = Purifier(gaussian(0.3), steps=4, step_size=0.2)
    one, two = (
        evaluate(
            DefendedClassifier(classifier, purifier, replicas=4, gradient=gradient),
            x,
            y,
            threat=Threat("linf", 0.01),
            **(SMALL | {"steps": 1}),
        ).tally
        for gradient in (Transfer(), Fixed(Transfer()))
    )
    moved = [row for row in one.unbroken().tolist() if row in two.unbroken().tolist()]
    assert len(moved) > 3
    assert torch.equal(one.adversaries[moved], two.adversaries[moved])


@pytest.mark.parametrize(
    ("robust", "said"),
    [
        (DefendedClassifier(Linear(), Purifier(Score(torch.neg))), "masking checks go back .* no second derivative"),
        (defended("transfer"), "masking checks compare .* and transfer is one; check another gradient, such as bpda"),
    ],
)
def test_what_cannot_be_checked_is_said_before_any_attack(robust: DefendedClassifier, said: str) -> None:
    x, y = images(6)
    began: list[object] = []
    with pytest.raises(BadInput, match=said) as error:
        check_masking(robust, x, y, threat=Threat("linf", 0.1), watch=began.append, **SMALL)
    assert "\n" not in str(error.value)
    assert began == []


def test_the_attack_that_is_checked_is_not_made_again(tmp_path: Path) -> None:
    x, y = images(6)
    options: dict[str, Any] = {"threat": Threat("linf", 0.1), **SMALL}
    evaluate(defended(), x, y, folder=tmp_path / "bpda", **options)
    checks, found = tmp_path / "checks", check_masking(defended(), x, y, **options)
    assert check_masking(defended(), x, y, folder=checks, attacked=tmp_path / "bpda", **options) == found
    assert (checks / "steps" / "record").is_dir()
    assert not (checks / "plain").exists()
    with pytest.raises(BadInput, match=r"bpda holds another attack \(seed: 0 -> 1\)"):
        check_masking(defended(), x, y, folder=checks, attacked=tmp_path / "bpda", seed=1, **options)


def test_what_checks_said_is_kept_by_name(tmp_path: Path) -> None:
    (tmp_path / "table.txt").write_text("table\n\nmasking of a-k1:\npass  x: 1\n\nmasking of b-k1:\nFAIL  x: 2\n")
    masking.save(tmp_path, "b-k1", [masking.Check("x", True, "3")])
    assert masking.load(tmp_path) == {"a-k1": "masking of a-k1:\npass  x: 1", "b-k1": "masking of b-k1:\npass  x: 3"}


def test_gradient_norms_along_the_chain_in_closed_form() -> None:
    """Each segment of a Gaussian energy's chain multiplies |v| by (1 - a)^length."""
    x, y = images(5)
    purifier = Purifier(gaussian(0.5), steps=9, step_size=0.2)
    norms = gradient_norms(DefendedClassifier(Linear(), purifier), x, y, Full())
    assert norms.shape == (4, 5)
    torch.testing.assert_close(norms[1:] / norms[:-1], torch.full((3, 5), (1 - 0.2**2 / (2 * 0.25)) ** 3).double())
