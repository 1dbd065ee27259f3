import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from test_files import Killed, mortal
from torch import Tensor, nn

from attacks.small import Linear, defended, images
from ebmlife.attacks import Attack, AttackConfig, Progress, Record, Threat, evaluate, margin
from ebmlife.attacks.tally import NONE
from ebmlife.defense import DefendedClassifier, Purifier
from ebmlife.defense.gradients import Bpda, Gradient
from ebmlife.errors import BadInput, Diverged
from ebmlife.sampling.energy import Energy, Score, gaussian, tempered

SMALL: dict[str, Any] = {"steps": 4, "replicas": 4, "verify": 12, "evaluations": 2}


def same(a: Record, b: Record) -> bool:
    one, two = a.tally.state_dict(), b.tally.state_dict()
    equal = [torch.equal(one[n], two[n]) if isinstance(one[n], Tensor) else one[n] == two[n] for n in one]
    return all(equal) and a.settings == b.settings


@pytest.mark.parametrize("gradient", ["bpda", "full", "smooth", "transfer", "fixed", "fixed-full"])
@pytest.mark.parametrize("loss", ["cross-entropy", "margin", "dlr"])
def test_what_lies_within_reach_of_the_boundary_is_broken_and_nothing_else(gradient: str, loss: str) -> None:
    """The mean pixel decides. In [-1, 1] the attack moves it by 2 radius, and the noise of the averaged logits is a
    hundred times smaller: an image of mean m breaks iff |m| < 2 radius."""
    x, y = images(10)
    radius = 0.13
    options = {"threat": Threat("linf", radius), "step_size": radius, "loss": loss, **SMALL}
    record = evaluate(defended(gradient, step_size=1e-3), x, y, **options)
    reach = x.flatten(1).mean(1).abs() < 2 * radius
    assert torch.equal(record.tally.broken_at != NONE, reach)
    assert record.natural.value == 1
    assert record.verified.right == record.final.right == record.worst.right == int((~reach).sum())
    offset = (record.tally.adversaries - x).abs().flatten(1).amax(1) / 2
    assert offset.max() <= radius * (1 + 1e-5)


def test_a_threat_may_be_text() -> None:
    x, y = images(4)
    records = [evaluate(defended(), x, y, threat=threat, **SMALL) for threat in ("linf:8/255", Threat("linf", 8 / 255))]
    assert same(*records)


def test_in_l2_too() -> None:
    """Over d pixels, an L2 ball of radius r moves the mean by 2 r / sqrt(d)."""
    x, y = images(10)
    record = evaluate(defended(step_size=1e-3), x, y, threat=Threat("l2", 0.52), step_size=0.52, **SMALL)
    assert torch.equal(record.tally.broken_at != NONE, x.flatten(1).mean(1).abs() < 2 * 0.52 / 4)


def test_a_bare_classifier_is_attacked_by_the_same_means() -> None:
    x, y = images(10)
    record = evaluate(Linear(), x, y, threat=Threat("linf", 0.13), step_size=0.13, **SMALL)
    assert torch.equal(record.tally.broken_at != NONE, x.flatten(1).mean(1).abs() < 0.26)
    assert record.cost["langevin_image_steps"] == 0
    assert record.settings["replicas"] == 1


@pytest.mark.parametrize("loss", ["cross-entropy", "margin"])
def test_confidence_is_no_defense(loss: str) -> None:
    """At margins of 20 to 200: each image can be moved across 0."""
    x, y = images(6)[0].abs(), torch.ones(6, dtype=torch.int64)
    record = evaluate(Linear(400.0), x, y, threat=Threat("linf", 0.4), steps=8, loss=loss)
    assert record.natural.value == 1
    assert record.verified.value == 0


def test_every_stage_is_written_down() -> None:
    x, y = images(10)
    record = evaluate(defended(step_size=1e-3), x, y, threat=Threat("linf", 0.13), **SMALL)
    tally = record.tally
    for row in range(10):
        at = int(tally.broken_at[row])
        until = at if at != NONE else 4
        assert (tally.attacked[row, : until + 1] != NONE).all()
        assert (tally.attacked[row, until + 1 :] == NONE).all()  # it has left the batch
        wrong = (tally.attacked[row] != NONE) & (tally.attacked[row] != y[row])
        assert torch.equal(tally.verified[row] != NONE, wrong)  # verified where doubtful, nowhere else
        assert at == NONE or tally.verified[row, at] != y[row]
    assert (tally.final != NONE).all()
    assert tally.logits.shape == (10, 3)


def test_the_cost_is_counted() -> None:
    """Two unbroken images: N gradients each; chains: natural, N + 1 evaluations, and the final evaluations."""
    x = torch.tensor([0.9, -0.9]).view(2, 1, 1, 1).expand(2, 1, 4, 4).contiguous()
    y = torch.tensor([1, 0])
    for gradient, evaluations in (("bpda", 4 + 1), ("full", 3 * 4 + 1)):
        record = evaluate(defended(gradient), x, y, threat=Threat("linf", 0.01), **SMALL)
        assert record.verified.right == 2
        assert record.cost["gradients"] == 2 * 4
        assert record.cost["langevin_image_steps"] == 2 * 3 * (12 + evaluations * 4 + 2 * 12)


def test_an_image_that_is_wrong_by_nature_is_not_attacked() -> None:
    x, y = images(4)
    y[0] = 2
    record = evaluate(defended(step_size=1e-3), x, y, threat=Threat("linf", 1 / 255), **SMALL)
    assert record.natural.right == 3
    assert record.verified.right == 3
    assert (record.tally.attacked[0] == NONE).all()
    assert torch.equal(record.tally.adversaries[0], x[0])


def test_a_break_is_believed_only_after_the_larger_draw() -> None:
    """One noisy replica is often wrong about a mean of 0.1; the mean of 1,000 is not."""
    x = torch.full((12, 1, 1, 1), 0.1)
    y = torch.ones(12, dtype=torch.int64)
    robust = DefendedClassifier(Linear(), Purifier(gaussian(100.0), steps=1, step_size=0.3), replicas=1)
    record = evaluate(robust, x, y, threat=Threat("linf", 1e-4), steps=3, replicas=1, verify=1000, evaluations=1)
    assert (record.tally.attacked != 1).any()
    assert record.verified.value == 1


@pytest.mark.parametrize("gradient", ["bpda", "fixed"])
def test_no_image_depends_on_its_company(gradient: str) -> None:
    x, y = images(9)
    threat = Threat("linf", 0.13)
    whole = evaluate(defended(gradient, step_size=0.3), x, y, threat=threat, **SMALL).tally
    grouped = evaluate(defended(gradient, step_size=0.3, batch=8), x, y, threat=threat, group=2, **SMALL).tally
    ids = [5, 2]
    alone = evaluate(defended(gradient, step_size=0.3), x[ids], y[ids], ids=ids, threat=threat, **SMALL).tally
    assert torch.equal(whole.attacked, grouped.attacked)
    assert torch.equal(whole.adversaries, grouped.adversaries)
    for name in ("natural", "attacked", "verified", "broken_at", "final", "adversaries"):
        assert torch.equal(getattr(whole, name)[ids], getattr(alone, name))


def test_other_seeds_are_other_attacks() -> None:
    x, y = images(6)
    records = [
        evaluate(defended(step_size=0.3), x, y, threat=Threat("linf", 0.1), seed=seed, **SMALL) for seed in (0, 0, 1)
    ]
    assert same(records[0], records[1])
    assert not torch.equal(records[0].tally.adversaries, records[2].tally.adversaries)


def test_known_noise_is_one_draw() -> None:
    """Attack and every evaluation see the same chains, so that what breaks once is broken."""
    x, y = images(9)
    record = evaluate(defended("fixed", step_size=0.5), x, y, threat=Threat("linf", 0.1), **SMALL)
    tally = record.tally
    assert torch.equal(tally.final[:, 0], tally.final[:, 1])
    doubtful = tally.verified != NONE
    assert doubtful.any()
    assert torch.equal(tally.verified[doubtful], tally.attacked[doubtful])
    assert record.verified == record.final == record.averaged == record.worst


def test_known_noise_has_no_larger_draw(tmp_path: Path) -> None:
    x, y = images(9)
    options: dict[str, Any] = {"threat": Threat("linf", 0.1), "folder": tmp_path, **SMALL}
    record = evaluate(defended("fixed", step_size=0.5), x, y, **options)
    assert record.settings["verify"] == record.settings["replicas"] == 4
    assert same(record, evaluate(defended("fixed", step_size=0.5), x, y, **(options | {"verify": 20})))


def test_a_folder_that_names_a_larger_draw_of_known_noise_is_resumed(tmp_path: Path) -> None:
    x, y = images(9)
    options: dict[str, Any] = {"threat": Threat("linf", 0.1), **SMALL}
    named = Attack(defended("fixed"), x, y, AttackConfig(loss="margin", **options)).settings
    (tmp_path / "settings.json").write_text(json.dumps(named | {"verify": 12}))
    record = evaluate(defended("fixed"), x, y, loss="margin", folder=tmp_path, **options)
    assert record.settings["verify"] == 12


def test_a_defense_of_fixed_noise_is_attacked_with_that_noise() -> None:
    """Its purifier has a seed: every evaluation is what the module itself says of the image."""
    x, y = images(9)
    robust = defended(step_size=0.5)
    robust.purifier.seed = 7
    record = evaluate(robust, x, y, threat=Threat("linf", 0.1), **SMALL)
    adversaries = record.tally.adversaries
    with torch.no_grad():
        own = robust(adversaries, replicas=SMALL["verify"])
    torch.testing.assert_close(record.tally.logits, SMALL["evaluations"] * own)
    assert record.settings["langevin_seed"] == 7


@pytest.mark.parametrize("after", [1, 4, 7, 9, 23])
def test_a_killed_attack_goes_on_to_the_same_record(tmp_path: Path, after: int) -> None:
    x, y = images(9)
    robust = defended("full", step_size=0.3)
    options: dict[str, Any] = {"threat": Threat("linf", 0.1), "group": 4, **SMALL}
    seen: list[Progress] = []

    def kill(progress: Progress) -> None:
        seen.append(progress)
        if len(seen) == after:
            raise Killed

    with pytest.raises(Killed):
        evaluate(robust, x, y, folder=tmp_path / "a", save_every=0, watch=kill, **options)
    assert not (tmp_path / "a" / "record").exists()
    left: list[Progress] = []
    resumed = evaluate(robust, x, y, folder=tmp_path / "a", save_every=0, watch=left.append, **options)
    assert same(resumed, evaluate(robust, x, y, folder=tmp_path / "b", **options))
    assert same(resumed, Record.load(tmp_path / "a" / "record"))
    assert len(left) == 3 * 8 - after  # nothing was done twice
    assert not (tmp_path / "a" / "parts").exists()
    assert same(resumed, evaluate(robust, x, y, folder=tmp_path / "a", watch=kill, **options))  # finished: no work
    assert len(seen) == after


@pytest.mark.parametrize("changes", range(6, 16))
def test_so_does_one_that_is_killed_while_it_keeps_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: int
) -> None:
    """Changes of names on the disk: about three for the settings and the first time that a part is kept, then more."""
    x, y = images(4)
    options: dict[str, Any] = {"threat": Threat("linf", 0.1), **SMALL}
    with monkeypatch.context() as dying:
        mortal(dying, changes)
        with pytest.raises(Killed):
            evaluate(defended(step_size=0.3), x, y, folder=tmp_path, save_every=0, **options)
    resumed = evaluate(defended(step_size=0.3), x, y, folder=tmp_path, save_every=0, **options)
    assert same(resumed, evaluate(defended(step_size=0.3), x, y, **options))


def test_a_killed_attack_goes_on_with_another_batch_to_the_same_record(tmp_path: Path) -> None:
    x, y = images(30)
    options: dict[str, Any] = {"threat": Threat("linf", 0.1), **SMALL}
    seen: list[Progress] = []

    def kill(progress: Progress) -> None:
        seen.append(progress)
        if len(seen) == 3:
            raise Killed

    with pytest.raises(Killed):
        evaluate(defended(step_size=0.3, batch=32), x, y, folder=tmp_path / "a", save_every=0, watch=kill, **options)
    resumed = evaluate(defended(step_size=0.3, batch=8), x, y, folder=tmp_path / "a", **options)
    assert same(resumed, evaluate(defended(step_size=0.3, batch=32), x, y, folder=tmp_path / "b", **options))
    assert resumed.settings["group"] == 3 * 32 // 4


def test_a_bare_classifier_fills_its_groups() -> None:
    x, y = images(4)
    record = evaluate(Linear(), x, y, threat=Threat("linf", 0.1), **(SMALL | {"replicas": 48, "verify": 128}))
    assert record.settings["group"] == 3 * 256


def doubled(logits: Tensor, y: Tensor) -> Tensor:
    return 2 * margin(logits, y)


@dataclass(frozen=True)
class Steeper(Bpda):
    times: float = 2.0


class Nameless(Bpda):
    def __repr__(self) -> str:
        return object.__repr__(self)


def test_a_folder_knows_ones_own_loss_and_gradient_by_lasting_names(tmp_path: Path) -> None:
    x, y = images(4)
    options: dict[str, Any] = {"threat": Threat("linf", 0.1), **SMALL}
    named = evaluate(defended(Steeper()), x, y, loss=doubled, folder=tmp_path / "a", **options).settings
    assert (named["loss"], named["mode"]) == (f"{__name__}.doubled", "Steeper(times=2.0)")
    with pytest.raises(BadInput, match=r"another attack \(mode: Steeper\(times=2.0\) -> Steeper\(times=3.0\)\)"):
        evaluate(defended(Steeper(3.0)), x, y, loss=doubled, folder=tmp_path / "a", **options)
    assert evaluate(defended(), x, y, loss=margin, folder=tmp_path / "b", **options).settings["loss"] == "margin"


@pytest.mark.parametrize(
    ("gradient", "loss", "said"),
    [
        (Bpda(), lambda logits, y: margin(logits, y), "the loss .*<lambda> cannot be identified in a folder"),
        (Bpda(), partial(margin), "the loss partial cannot .*; make it a function of a module"),
        (Nameless(), "margin", "the gradient bpda cannot .* make it a dataclass"),
    ],
)
def test_without_one_they_need_no_folder(gradient: Gradient, loss: Any, said: str, tmp_path: Path) -> None:
    x, y = images(4)
    options: dict[str, Any] = {"threat": Threat("linf", 0.1), "loss": loss, **SMALL}
    assert evaluate(defended(gradient), x, y, **options).natural.value == 1
    with pytest.raises(BadInput, match=said) as error:
        evaluate(defended(gradient), x, y, folder=tmp_path, **options)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


class Bent(nn.Module):
    """An energy of two kinks."""

    def forward(self, x: Tensor) -> Tensor:
        return (torch.relu(x) + torch.relu(-x)).flatten(1).square().sum(1)


@pytest.mark.parametrize(("gradient", "full"), [("smooth", "full"), ("fixed-smooth", "fixed-full")])
def test_an_energy_without_kinks_is_noted_where_it_was_to_be_smoothed(gradient: str, full: str, tmp_path: Path) -> None:
    x, y = images(4)
    options: dict[str, Any] = {"threat": Threat("linf", 0.1), **SMALL}
    record = evaluate(defended(gradient), x, y, folder=tmp_path, **options)
    exact = evaluate(defended(full), x, y, **options)
    assert torch.equal(record.tally.adversaries, exact.tally.adversaries)  # so it is
    assert str(record).splitlines()[-1].startswith(f"note: {gradient} is {full} here: the energy has no ReLU")
    assert same(record, evaluate(defended(gradient), x, y, folder=tmp_path, **options))
    bent = DefendedClassifier(Linear(), Purifier(Bent(), steps=3, step_size=0.05), replicas=4, gradient=gradient)
    assert "note" not in str(evaluate(bent, x, y, **options))
    assert "note" not in str(exact)


@pytest.mark.parametrize("note", [{}, {"note": "in other words"}])
def test_a_folder_keeps_the_notes_of_earlier_versions(note: dict[str, str], tmp_path: Path) -> None:
    x, y = images(4)
    options: dict[str, Any] = {"threat": Threat("linf", 0.1), **SMALL}
    named = Attack(defended("smooth"), x, y, AttackConfig(loss="margin", **options)).settings
    assert "note" in named
    earlier = {name: named[name] for name in named if name != "note"} | note
    (tmp_path / "settings.json").write_text(json.dumps(earlier))
    assert evaluate(defended("smooth"), x, y, loss="margin", folder=tmp_path, **options).settings == earlier


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_labels_may_be_any_whole_numbers(dtype: torch.dtype) -> None:
    x, y = images(4)
    records = [evaluate(defended(), x, it, threat=Threat("linf", 0.1), **SMALL) for it in (y, y.to(dtype))]
    assert same(*records)


def test_a_folder_of_another_attack_is_refused(tmp_path: Path) -> None:
    x, y = images(4)
    evaluate(defended(), x, y, threat=Threat("linf", 0.1), folder=tmp_path, **SMALL)
    with pytest.raises(BadInput, match=r"holds another attack \(seed: 0 -> 1\)"):
        evaluate(defended(), x, y, threat=Threat("linf", 0.1), folder=tmp_path, seed=1, **SMALL)
    with pytest.raises(BadInput, match=r"holds another attack.*images"):
        evaluate(defended(), x * 0.9, y, threat=Threat("linf", 0.1), folder=tmp_path, **SMALL)
    other = defended()
    other.classifier = Linear(3.0)
    with pytest.raises(BadInput, match=r"holds another attack.*model"):
        evaluate(other, x, y, threat=Threat("linf", 0.1), folder=tmp_path, **SMALL)


def test_two_attacks_do_not_work_in_one_folder_at_once(tmp_path: Path) -> None:
    x, y = images(4)
    options: dict[str, Any] = {"threat": Threat("linf", 0.1), "folder": tmp_path, **SMALL}
    refused: list[str] = []

    def second(_: Progress) -> None:
        with pytest.raises(BadInput, match="is in use by another process") as error:
            evaluate(defended(), x, y, **options)
        refused.append(str(error.value))

    record = evaluate(defended(), x, y, watch=second, save_every=0, **options)
    assert len(refused) == 4 + 2 + 2
    assert "\n" not in refused[0]
    assert same(record, evaluate(defended(), x, y, **options))  # a finished one is free
    assert sorted(path.name for path in tmp_path.iterdir()) == ["record", "settings.json"]


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    x, y = images(4)
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"cannot write .*file/attack"):
        evaluate(defended(), x, y, threat=Threat("linf", 0.1), folder=tmp_path / "file" / "attack", **SMALL)


class Biased(Linear):
    """Shifted by a buffer that is no part of the state dict, as a classifier's scaling is."""

    def __init__(self, shift: float) -> None:
        super().__init__()
        self.register_buffer("shift", torch.tensor(shift), persistent=False)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((Linear(), tempered(gaussian(1.0), 1.0)), (Linear(), tempered(gaussian(1.0), 0.5))),
        ((Linear(), gaussian(1.0)), (Linear(), gaussian(2.0))),
        ((Biased(0.0), gaussian(1.0)), (Biased(0.1), gaussian(1.0))),
        ((nn.Sequential(Linear()), gaussian(1.0)), (nn.Sequential(nn.Softsign(), Linear()), gaussian(1.0))),
    ],
)
def test_so_is_that_of_another_function_with_the_same_weights(
    before: tuple[nn.Module, Energy], after: tuple[nn.Module, Energy], tmp_path: Path
) -> None:
    x, y = images(4)
    one, two = (DefendedClassifier(c, Purifier(e, steps=3, step_size=0.05)) for c, e in (before, after))
    evaluate(one, x, y, threat=Threat("linf", 0.1), folder=tmp_path, **SMALL)
    evaluate(one, x, y, threat=Threat("linf", 0.1), folder=tmp_path, **SMALL)
    with pytest.raises(BadInput, match=r"holds another attack \(model"):
        evaluate(two, x, y, threat=Threat("linf", 0.1), folder=tmp_path, **SMALL)


def test_progress_ends_at_one_and_never_falls() -> None:
    x, y = images(9)
    seen: list[Progress] = []
    record = evaluate(defended(step_size=1e-3), x, y, threat=Threat("linf", 0.1), group=4, watch=seen.append, **SMALL)
    done = [progress.done for progress in seen]
    assert done == sorted(done)
    assert done[-1] == 1
    assert seen[-1].unbroken == record.verified
    assert seen[-1].seconds_left == 0


X, Y = images(4)


class Misfit(nn.Module):
    def __init__(self, out: tuple[int, ...]) -> None:
        super().__init__()
        self.out = out

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros(len(x), *self.out)


class Particular(Linear):
    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[1] == 3
        return super().forward(x)


class Spelt(nn.Module):
    """An energy of kinks that nothing tells from other functions."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, x, 0 * x).flatten(1).sum(1)


class Two(Linear):
    """The first two classes alone."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[:, :2]


@pytest.mark.parametrize(
    ("model", "x", "y", "options", "said"),
    [
        (Linear(), X * 255, Y, {}, r"in \[-1, 1\]"),
        (Linear(), X * float("nan"), Y, {}, r"in \[-1, 1\]"),
        (Linear(), X[0], Y, {}, r"\(B, C, H, W\)"),
        (Linear(), X[:0], Y[:0], {}, "B above 0"),
        (Linear(), X, Y + 2, {}, "classes 0 to 2, .* labels go from 2 to 3"),
        (Linear(), X, Y - 1, {}, "labels go from -1 to 0"),
        (Linear(), X, 1 - Y, {}, "alone is right about none of the 4 images"),
        (defended(), X, 0 * Y + 2, {}, "alone is right about none of the 4 images"),
        (Linear(), X, Y[:3], {}, "4 images need as many"),
        (Linear(), X, Y.float(), {}, "integer labels"),
        (Linear(), X, Y.bool(), {}, "integer labels"),
        (Misfit(()), X, Y, {}, "logits"),
        (Particular(), X, Y, {}, r"does not take images of shape \(1, 4, 4\): "),
        (DefendedClassifier(Linear(), Purifier(Spelt()), gradient="smooth"), X, Y, {}, "finds no curvature"),
        (nn.Conv2d(3, 4, 3), X, Y, {}, "does not take images of shape"),
        (nn.Sequential(nn.Flatten(), nn.Linear(9, 3)), X, Y, {}, "does not take images of shape"),
        (DefendedClassifier(Linear(), Purifier(nn.Conv2d(3, 1, 1))), X, Y, {}, "the energy does not take"),
        (
            DefendedClassifier(Linear(), Purifier(Score(torch.neg)), gradient="full"),
            X,
            Y,
            {},
            "full gradients go back through the chain, but the energy has no second derivative",
        ),
        (defended(), X, Y, {"verify": 3}, "at least the 4 replicas"),
        (defended(), X, Y, {"replicas": 0}, "replicas must be at least 1"),
        (defended(), X, Y, {"steps": -1}, "attack steps must be at least 0, got -1"),
        (defended(), X, Y, {"steps": 2.5}, "steps of an attack must be an integer, got 2.5"),
        (defended(), X, Y, {"verify": "16"}, "verify of an attack must be an integer, got '16'"),
        (defended(), X, Y, {"group": 2.0}, "group of an attack must be an integer, got 2.0"),
        (defended(), X, Y, {"step_size": "2/255"}, "step_size of an attack must be a number .* got '2/255'"),
        (defended(), X, Y, {"threat": "linf"}, "such as linf:8/255"),
        (defended(), X, Y, {"threat": 8 / 255}, "a threat must be a Threat or text such as 'linf:8/255', got 0.03"),
        (defended(), X, Y, {"step_size": 0.0}, "step_size of an attack must be above 0"),
        (defended(), X, Y, {"step_size": 2.0}, "step_size 2 .* linf:0.1; .* give 2/255"),
        (defended(), X, Y, {"threat": Threat("l2", 128)}, "radius 128 of an l2 threat: .* at most 4 apart"),
        (Two(), X, Y, {"loss": "dlr"}, "the dlr loss needs at least 3 classes"),
        (defended(), X, Y, {"evaluations": 0}, "evaluations must be at least 1"),
        (defended(), X, Y, {"ids": [1, 1, 2, 3]}, "different ids"),
        (defended(), X, Y, {"loss": "hinge"}, "unknown loss"),
    ],
)
def test_mistakes_are_one_line_before_any_step(
    model: nn.Module, x: Tensor, y: Tensor, options: dict[str, Any], said: str
) -> None:
    stages: list[Progress] = []
    with pytest.raises(BadInput, match=said) as error:
        evaluate(model, x, y, watch=stages.append, **({"threat": Threat("linf", 0.1)} | SMALL | options))
    assert "\n" not in str(error.value)
    assert stages == []


def test_few_images_may_all_be_wrong() -> None:
    record = evaluate(defended(), X[:3], 1 - Y[:3], threat=Threat("linf", 0.1), **SMALL)
    assert record.natural.value == 0


def test_of_many_images_one_that_is_right_is_enough() -> None:
    x, y = images(40)
    y = 1 - y
    y[-1] = 1 - y[-1]
    assert evaluate(defended(batch=8), x, y, threat=Threat("linf", 0.01), **SMALL).natural.right == 1


class Torn(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + (x.flatten(1).mean(1, keepdim=True) - 0.5).sqrt() * 0


def test_a_nan_is_never_taken_for_a_prediction() -> None:
    x = torch.full((1, 1, 4, 4), 0.51)
    with pytest.raises(Diverged, match="logits at attack step"):
        evaluate(Torn(), x, torch.tensor([1]), threat=Threat("linf", 0.1), **SMALL)
