"""What the code of the paper's authors does otherwise: each option against a computation in plain PyTorch."""

import json
from argparse import Namespace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from conftest import small_digits
from test_cli import Capture, fails, words, works
from torch import Tensor, nn
from torch.nn import functional as F

from ebmlife import DefendedClassifier, Purifier, recipes
from ebmlife.attacks import Record, evaluate
from ebmlife.cli import attack_plan
from ebmlife.data import digits
from ebmlife.errors import BadInput
from ebmlife.exam import score_samples
from ebmlife.nets import SNGANGenerator
from ebmlife.plots import pictures
from ebmlife.recipes.authors import as_authors
from ebmlife.recipes.schema import EBMRecipe, differences, override, validate
from ebmlife.runs import build
from ebmlife.runs.scores import read
from ebmlife.sampling.energy import gaussian
from ebmlife.sampling.loop import Walk
from ebmlife.sampling.rng import Streams, normal
from ebmlife.training.chains import BurnIn, Persistent
from ebmlife.training.learner import Learner
from ebmlife.training.starts import InitialStates, Uniform


def test_clipping_by_weight_bounds_the_norm_of_each_weights_gradient() -> None:
    """g_i min(1, clip / |g_i|) for every tensor: some are cut, some are not, and not by one factor."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1))
    x = torch.randn(4, 5)
    gradients = torch.autograd.grad(net(x).sum(), list(net.parameters()))
    norms = [gradient.norm().item() for gradient in gradients]
    clip = sorted(norms)[1] * 1.01
    wanted = [
        weight.detach() - gradient * min(1.0, clip / norm)
        for weight, gradient, norm in zip(net.parameters(), gradients, norms, strict=True)
    ]
    learner = Learner(net, torch.optim.SGD(net.parameters()), learning_rate=1.0, clip=clip, clip_by="weight")
    learner.descend(net(x).sum(), update=0)
    torch.testing.assert_close([p.detach() for p in net.parameters()], wanted)


def test_momentum_is_the_share_of_a_batch_in_the_running_statistics() -> None:
    torch.manual_seed(0)
    generator = SNGANGenerator(size=8, width=4, channels=1, latent=3, batch_norm_momentum=0.01).train()
    seen: list[Tensor] = []
    generator.norm.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach()))
    for _ in range(2):
        generator(torch.randn(6, 3))
    mean, variance = torch.zeros(4), torch.ones(4)
    for h in seen:
        mean = 0.99 * mean + 0.01 * h.mean((0, 2, 3))
        variance = 0.99 * variance + 0.01 * h.var((0, 2, 3))
    torch.testing.assert_close(generator.norm.running_mean, mean)
    torch.testing.assert_close(generator.norm.running_var, variance)


def test_scale_and_offset_are_batch_norm_in_inference_mode() -> None:
    """The authors' layers are there without batch norm too, called in inference mode."""
    torch.manual_seed(0)
    ours = SNGANGenerator(size=16, width=4, channels=1, latent=3, batch_norm=False, scale_and_offset=True)
    with torch.no_grad():
        for name, weight in ours.named_parameters():
            if "norm" in name:
                weight.add_(torch.randn_like(weight))
    theirs = SNGANGenerator(size=16, width=4, channels=1, latent=3, batch_norm=True).eval()
    missing, unexpected = theirs.load_state_dict(ours.state_dict(), strict=False)
    assert all(name.endswith(("running_mean", "running_var", "num_batches_tracked")) for name in missing)
    assert not unexpected
    z = torch.randn(5, 3)
    torch.testing.assert_close(ours.train()(z), theirs(z))
    plain = SNGANGenerator(size=16, width=4, channels=1, latent=3, batch_norm=False)
    assert not any("norm" in name for name in plain.state_dict())
    with pytest.raises(BadInput, match="scale_and_offset replaces batch norm"):
        SNGANGenerator(scale_and_offset=True)
    with pytest.raises(BadInput, match="batch_norm_momentum must be above 0"):
        SNGANGenerator(batch_norm_momentum=0.0)


class Counted:
    """A start that knows how many states it made each time."""

    def __init__(self) -> None:
        self.start, self.made = Uniform((1, 2, 2)), list[int]()

    def __call__(self, n: int, *, rng: torch.Generator, old: Tensor | None = None) -> InitialStates:
        self.made.append(n)
        return self.start(n, rng=rng)


def walk(streams: Streams) -> Walk:
    return Walk(steps=1, step_size=0.1, noise=normal(streams["langevin"]))


@pytest.mark.parametrize(("count_first_walk", "walks"), [(True, 3), (False, 4)])
def test_the_walk_after_a_rejuvenation_is_counted_or_not(count_first_walk: bool, walks: int) -> None:
    """The authors' code: new = count > w, then count = (count + 1) * (1 - new). All states are drawn each time."""
    streams, start = Streams(0), Counted()
    chains = Persistent(start, walk(streams), streams, size=5, rounds=2, count_first_walk=count_first_walk)
    start.made.clear()
    theirs, reborn_at = 0, []
    for update in range(20):
        before = len(start.made)
        chains.step(gaussian(0.5), 5)
        rejuvenated = len(start.made) > before
        if rejuvenated:
            reborn_at.append(update)
        if not count_first_walk:
            assert rejuvenated == (theirs > 2)
            theirs = (theirs + 1) * (1 - rejuvenated)
            assert chains.bank.age.tolist() == [theirs] * 5
    assert reborn_at[0] == 3  # the first states of all are not rejuvenated ones
    assert {b - a for a, b in pairwise(reborn_at)} == {walks}


@pytest.mark.parametrize(("count_first_walk", "walks"), [(True, 3), (False, 4)])
def test_states_are_burned_in_after_so_many_walks_or_one_more(count_first_walk: bool, walks: int) -> None:
    streams = Streams(0)
    chains = BurnIn(
        Uniform((1, 2, 2)),
        walk(streams),
        streams,
        size=4,
        burn_in_size=4,
        mature=3,
        count_first_walk=count_first_walk,
    )
    chains.burn_in.age.zero_()
    arrived = []
    for _ in range(12):
        chains.step(gaussian(0.5), 4)
        arrived.append(chains.arrived)
    assert [arrived.index(4 * generation) + 1 for generation in (1, 2, 3)] == [walks, 2 * walks, 3 * walks]


def test_probabilities_are_averaged_and_attacked_as_the_authors_do() -> None:
    """softmax before the mean; the loss takes the mean for logits; its gradient at the purified images (BPDA)."""
    torch.manual_seed(0)
    classifier = nn.Sequential(nn.Flatten(), nn.Linear(9, 4))
    purifier = Purifier(gaussian(0.5), steps=2, step_size=0.3)
    robust = DefendedClassifier(classifier, purifier, replicas=11, average="probabilities")
    x, y = torch.rand(2, 1, 3, 3), torch.tensor([1, 3])
    (part,) = purifier.parts([1, 2], replicas=11)
    walked = purifier.walk(x.repeat_interleave(11, 0), purifier.noise(part, x.device)).requires_grad_()
    mean = torch.softmax(classifier(walked), 1).view(2, 11, 4).mean(1)
    (grads,) = torch.autograd.grad(F.cross_entropy(mean, y, reduction="sum"), walked)

    leaf = x.clone().requires_grad_()
    averaged = robust(leaf, seeds=[1, 2])
    torch.testing.assert_close(averaged, mean)
    (grad,) = torch.autograd.grad(F.cross_entropy(averaged, y, reduction="sum"), leaf)
    torch.testing.assert_close(grad, grads.view(2, 11, 1, 3, 3).sum(1))
    assert robust.with_gradient("full").average == "probabilities"
    assert not torch.allclose(DefendedClassifier(classifier, purifier, replicas=11)(x, seeds=[1, 2]), mean)
    with pytest.raises(BadInput, match="unknown average 'logit'; did you mean 'logits'"):
        DefendedClassifier(classifier, purifier, average="logit")


def test_a_record_says_what_was_averaged_where_it_is_not_logits() -> None:
    torch.manual_seed(0)
    classifier = nn.Sequential(nn.Flatten(), nn.Linear(9, 3))
    x = torch.rand(3, 1, 3, 3)
    y = classifier(x).argmax(1)
    purifier = Purifier(gaussian(0.5), steps=1, step_size=0.1)

    def settings(average: str) -> dict[str, object]:
        robust = DefendedClassifier(classifier, purifier, replicas=2, average=average)
        return evaluate(robust, x, y, threat="linf:8/255", steps=1, verify=2, evaluations=1).settings

    assert settings("probabilities")["average"] == "probabilities"
    assert "average" not in settings("logits")


SHORTRUN = {
    "optimizer.ema": 0.0,
    "optimizer.clip_by": "weight",
    "chains.count_first_walk": False,
    "generator.optimizer.ema": 0.0,
    "generator.optimizer.clip_by": "weight",
}
FIELDS: dict[str, dict[str, object]] = {
    "imagenet128-shortrun": SHORTRUN | {"generator.net.scale_and_offset": True},
    "cifar10-shortrun": SHORTRUN | {"generator.net.batch_norm_momentum": 0.01},
    "cifar10-longrun": {"optimizer.ema": 0.0, "optimizer.clip_by": "weight", "chains.count_first_walk": False},
    "digits-shortrun-noise": {"optimizer.ema": 0.0, "optimizer.clip_by": "weight"},
}


@pytest.mark.parametrize("name", FIELDS)
def test_the_switch_changes_fields_that_the_hash_knows(name: str, capsys: Capture) -> None:
    works("show", name)
    shown, plain = capsys.readouterr().out.rpartition("hash ")[::2]
    works("show", name, "--as-authors")
    changed, hashed = capsys.readouterr().out.rpartition("hash ")[::2]
    before, after = (flat(json.loads(text)) for text in (shown, changed))
    assert {field: after[field] for field in after if after[field] != before[field]} == FIELDS[name]
    assert plain != hashed


def flat(values: dict[str, object], prefix: str = "") -> dict[str, object]:
    leaves: dict[str, object] = {}
    for key, value in values.items():
        leaves |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return leaves


def test_fields_that_are_given_win_over_the_switch(capsys: Capture) -> None:
    works("show", "cifar10-shortrun", "--as-authors", "--optimizer.ema", "0.9", "--chains.kind", "fresh")
    shown = json.loads(capsys.readouterr().out.rpartition("hash ")[0])
    assert shown["optimizer"]["ema"] == 0.9
    assert shown["optimizer"]["clip_by"] == "weight"
    assert "works for 'ebm' only" in fails(capsys, "show", "digits-gan", "--as-authors")


def test_the_new_options_leave_hashes_as_they_were() -> None:
    """Known from runs of before, which name none of them."""
    known = {"digits-shortrun": "98a3566cb9af", "imagenet128-shortrun": "a7b888738cb6"}
    for name, expected in known.items():
        assert build.resolve(recipes.get(name)).hash == expected


def test_a_run_from_before_the_options_is_resumed_and_a_change_is_named() -> None:
    now = small_digits()
    values = now.model_dump(mode="json")
    del values["optimizer"]["clip_by"], values["generator"]["optimizer"]["clip_by"]
    del values["generator"]["net"]["batch_norm_momentum"], values["generator"]["net"]["scale_and_offset"]
    del values["chains"]["count_first_walk"]
    before = validate(values | {"explosion": 1e6})
    assert differences(before, now) == []
    assert before.hash == now.hash
    changed = build.resolve(override(now, {"chains.count_first_walk": "false", "optimizer.clip_by": "weight"}))
    assert differences(before, changed) == [
        "chains.count_first_walk: True -> False",
        "optimizer.clip_by: global -> weight",
    ]


def test_a_run_as_the_authors_trains_and_uses_its_raw_weights() -> None:
    recipe = small_digits(optimizer__clip="1", generator__net__batch_norm="false")
    recipe = build.resolve(override(recipe, as_authors(recipe)))
    assert isinstance(recipe, EBMRecipe)
    training = build.training(recipe)
    training.trainer.fit(3)
    for learner in (training.trainer.ebm, training.trainer.generator):
        assert learner.clip_by == "weight"
        pairs = zip(learner.net.state_dict().values(), learner.ema.state_dict().values(), strict=True)
        assert all(torch.equal(raw, averaged) for raw, averaged in pairs)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("authors") / "run"
    fields = words(updates="4", data__train="true", optimizer__ema="0.9", optimizer__learning_rate="1e-2")
    works("train", "digits-shortrun", "--out", folder, *fields)
    return folder


@pytest.mark.parametrize("switch", ["--raw", "--as-authors"])
def test_fid_scores_the_raw_weights(switch: str, run: Path) -> None:
    works("fid", run, "--n", "20", "--steps", "2", switch)
    model = build.load(run, averaged=False)
    wanted = score_samples(model, digits(), n=20, steps=2, seed=0)
    assert read(run)["ebmlife fid --n 20 --steps 2 --seed 0 --update 4 --raw"] == wanted
    works("fid", run, "--n", "20", "--steps", "2")
    assert read(run)["ebmlife fid --n 20 --steps 2 --seed 0 --update 4"] != wanted


@pytest.mark.parametrize("switch", ["--raw", "--as-authors"])
def test_purify_walks_on_the_raw_weights(switch: str, run: Path, tmp_path: Path) -> None:
    pictures.image(digits().take(torch.arange(1))[0]).save(tmp_path / "a.png")
    found = {}
    for name, options in {"raw": [switch], "averaged": []}.items():
        works("purify", run, tmp_path / "a.png", "--out", tmp_path / name, "--steps", "200", *options)
        found[name] = (tmp_path / name / "a.png").read_bytes()
    assert found["raw"] != found["averaged"]


ATTACK = ["--classifier", "attacks.small:digits_net", "--threat", "linf:8/255", "--n", "6", "--steps", "1"]
ATTACK += ["--replicas", "2", "--verify", "3", "--evaluations", "2", "--k", "2"]


def test_attack_knows_raw_weights_and_averages_apart(run: Path, capsys: Capture) -> None:
    """Of ten classes the authors average logits: their switch means probabilities for ImageNet only."""
    for options in ([], ["--as-authors"], ["--raw", "--average", "probabilities"]):
        works("attack", run, *ATTACK, *options)
    base = run / "attacks" / "digits_net-linf-8-255"
    plain, authors, probabilities = (
        Record.load(base.with_name(base.name + end) / "bpda-k2").settings for end in ("", "-raw", "-probabilities-raw")
    )
    assert "average" not in plain
    assert "average" not in authors
    assert probabilities["average"] == "probabilities"
    assert plain["model"] != authors["model"] == probabilities["model"]


@pytest.mark.parametrize(
    ("classes", "as_authors", "average", "expected"),
    [
        (1000, True, None, "probabilities"),
        (1000, True, "logits", "logits"),
        (1000, False, None, "logits"),
        (10, True, None, "logits"),
        (10, False, "probabilities", "probabilities"),
    ],
)
def test_the_switch_averages_probabilities_of_imagenets_classes(
    classes: int, as_authors: bool, average: str | None, expected: str
) -> None:
    classifier = nn.Sequential(nn.Flatten(), nn.Linear(9, classes))
    options = Namespace(as_authors=as_authors, average=average)
    assert attack_plan.average(options, classifier, torch.zeros(1, 1, 3, 3)) == expected


@pytest.mark.parametrize("command", ["sample", "exam"])
def test_samples_and_exams_take_the_switch_for_raw(command: str, run: Path, tmp_path: Path) -> None:
    found = {}
    for switch in ("--raw", "--as-authors"):
        out = tmp_path / switch.strip("-")
        options = ["--n", "4"] if command == "sample" else ["--steps", "5", "--chains", "4"]
        place = out.with_suffix(".npy") if command == "sample" else out
        works(command, run, *options, switch, "--out", place)
        found[switch] = (place if command == "sample" else place / "life-cycle.json").read_bytes()
    assert found["--raw"] == found["--as-authors"]
