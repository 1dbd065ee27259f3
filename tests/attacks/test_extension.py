"""A new loss or optimizer needs a function or class of its own, and one line in a table."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from test_cli import Capture, fails, works
from torch import Tensor

from attacks.small import Linear, defended, images
from ebmlife.attacks import LOSSES, OPTIMIZERS, Record, Threat, attack, evaluate, margin
from ebmlife.attacks.optimizers import Ascent
from ebmlife.attacks.tally import NONE
from ebmlife.sampling.rng import derive_seed

SMALL: dict[str, Any] = {"steps": 4, "replicas": 4, "verify": 12, "evaluations": 2}
ATTACK = ["--classifier", "attacks.small:digits_net", "--threat", "linf:8/255", "--n", "4", "--steps", "1"]
ATTACK += ["--replicas", "2", "--verify", "2", "--evaluations", "1", "--k", "1"]


def squared_margin(logits: Tensor, y: Tensor) -> Tensor:
    m = margin(logits, y)
    return m * m.abs()


def test_a_loss(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Capture) -> None:
    fails(capsys, "attack", "zoo:digits-midrun", *ATTACK, "--loss", "squared", "--out", tmp_path)
    monkeypatch.setitem(LOSSES, "squared", squared_margin)
    x, y = images(10)
    options: dict[str, Any] = {"threat": Threat("linf", 0.13), "step_size": 0.13, "folder": tmp_path / "a", **SMALL}
    record = evaluate(defended(step_size=1e-3), x, y, loss="squared", **options)
    assert torch.equal(record.tally.broken_at != NONE, x.flatten(1).mean(1).abs() < 0.26)
    works("attack", "zoo:digits-midrun", *ATTACK, "--loss", "squared", "--out", tmp_path / "b")
    for place in (tmp_path / "a", tmp_path / "b" / "bpda-k1"):
        assert Record.load(place).settings["loss"] == "squared"
    with pytest.raises(SystemExit):
        works("attack", "--help")
    assert "squared" in capsys.readouterr().out


@dataclass(frozen=True)
class RandomCorner:
    """Proposes a corner of the linf ball: all pixels up or all pixels down, without a gradient."""

    threat: Threat
    step_size: float
    needs_gradient = False

    def start(self, origin: Tensor, *, rng: torch.Generator) -> Tensor:
        return origin

    def step(self, x: Tensor, origin: Tensor, ascent: Ascent) -> Tensor:
        assert ascent.gradient is None
        assert ascent.loss.shape == (len(x),)
        sign = 1 if derive_seed(0, f"corner {ascent.step}") % 2 else -1
        return self.threat.inside(origin + 2 * sign * self.threat.radius, origin)


def test_an_optimizer_without_gradients(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(OPTIMIZERS, "corner", RandomCorner)
    x, y = images(10)
    options: dict[str, Any] = {"threat": Threat("linf", 0.13), "method": "corner", **(SMALL | {"steps": 8})}
    for model in (defended("full", step_size=1e-3), Linear()):
        record = evaluate(model, x, y, folder=tmp_path / type(model).__name__, **options)
        assert record.settings["method"] == "corner"
        assert record.cost["gradients"] == 0
        assert torch.equal(record.tally.broken_at != NONE, x.flatten(1).mean(1).abs() < 0.26)


def test_each_attack_of_a_command_is_checked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    checked = []
    check = attack.validation.attack
    monkeypatch.setattr(attack.validation, "attack", lambda *each: (checked.append(each), check(*each)))
    works("attack", "zoo:digits-midrun", *ATTACK, "--out", tmp_path / "out")
    assert len(checked) == 2  # the bare classifier and its defense
