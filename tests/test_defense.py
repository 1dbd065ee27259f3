import pytest
import torch
from torch import Tensor, nn

import ebmlife
from ebmlife import BadInput, DefendedClassifier, Diverged, Purifier
from ebmlife.defense.defended import undefended
from ebmlife.nets import SNGANEnergy
from ebmlife.sampling.energy import gaussian, tempered
from ebmlife.sampling.fast import prepare


class Sum(nn.Module):
    """Logits (s, -s) of the image's mean: linear, so that averages are exact."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.most = 0

    def forward(self, x: Tensor) -> Tensor:
        self.most = max(self.most, len(x))
        mean = x.flatten(1).mean(1)
        return torch.stack([self.scale * mean, -self.scale * mean], 1)


def test_purifying_a_gaussian_has_the_exact_moments() -> None:
    """x -> (1 - a)^K x + noise of variance step^2 (1 - (1 - a)^2K) / (1 - (1 - a)^2)."""
    x = torch.full((20_000, 1, 1, 1), 0.7)
    torch.manual_seed(0)
    walked = Purifier(gaussian(0.5), steps=8, step_size=0.2)(x)
    keep = 1 - 0.2**2 / (2 * 0.5**2)
    variance = 0.2**2 * (1 - keep**16) / (1 - keep**2)
    assert walked.mean().item() == pytest.approx(0.7 * keep**8, abs=5 * (variance / 20_000) ** 0.5)
    assert walked.var().item() == pytest.approx(variance, rel=5 * (2 / 20_000) ** 0.5)


def test_a_seed_makes_an_images_purification_its_own() -> None:
    purifier = Purifier(gaussian(0.5), steps=3, step_size=0.2, seed=4)
    x = torch.rand(7, 1, 4, 4)
    assert torch.equal(purifier(x)[5:], purifier(x[5:]))
    assert torch.equal(purifier(x), purifier(x))
    assert not torch.equal(Purifier(gaussian(0.5), steps=3, step_size=0.2, seed=5)(x), purifier(x))


def test_the_trajectory_is_the_way_that_purification_goes() -> None:
    torch.manual_seed(0)
    purifier = Purifier(prepare(SNGANEnergy(size=8, width=4, channels=1), temperature=0.1), steps=7, step_size=0.1)
    x, seeds = torch.rand(9, 1, 8, 8), list(range(9))
    states = purifier.trajectory(x, at=[0, 1, 4, 7], seeds=seeds)
    assert torch.equal(states[0], x)
    assert torch.equal(states[3], purifier(x, seeds=seeds))
    assert states[1:].diff(dim=0).abs().flatten(1).amax(1).min() > 0


def test_without_a_seed_the_noise_is_new_and_the_global_seed_rules() -> None:
    purifier, x = Purifier(gaussian(0.5), steps=3, step_size=0.2), torch.rand(7, 1, 4, 4)
    torch.manual_seed(0)
    first, second = purifier(x), purifier(x)
    torch.manual_seed(0)
    assert torch.equal(purifier(x), first)
    assert not torch.equal(first, second)


def test_parts_change_nothing_and_bound_what_is_seen_at_once() -> None:
    torch.manual_seed(0)
    energy = tempered(prepare(SNGANEnergy(size=8, width=8, channels=1)), 0.01)
    x = torch.rand(7, 1, 8, 8)
    seeds = list(range(7))
    found = []
    for batch in (8, 24, 1000):
        classifier = Sum()
        robust = DefendedClassifier(classifier, Purifier(energy, steps=3, step_size=0.03, batch=batch), replicas=16)
        leaf = x.clone().requires_grad_()
        logits = robust(leaf, seeds=seeds)
        logits[:, 0].sum().backward()
        assert classifier.most <= batch
        found.append((logits.detach(), leaf.grad))
    for logits, grad in found[1:]:
        assert torch.equal(logits, found[0][0])
        assert torch.equal(grad, found[0][1])


def test_logits_are_averaged_over_the_replicas() -> None:
    purifier = Purifier(gaussian(0.5), steps=2, step_size=0.3)
    robust = DefendedClassifier(Sum(), purifier, replicas=11)
    x = torch.rand(2, 1, 3, 3)
    (part,) = purifier.parts([1, 2], replicas=11)
    walked = purifier.walk(x.repeat_interleave(11, 0), purifier.noise(part, x.device))
    wanted = robust.classifier(walked).view(2, 11, 2).mean(1)
    torch.testing.assert_close(robust(x, seeds=[1, 2]), wanted)


def test_replicas_are_independent_and_images_with_one_seed_share_them() -> None:
    purifier = Purifier(gaussian(0.5), steps=2, step_size=0.3)
    groups = [group for part in purifier.parts([1, 1, 2], replicas=20) for group in part]
    assert [group.chains for group in groups] == [8, 8, 4] * 3
    assert [group.seed for group in groups[:3]] == [group.seed for group in groups[3:6]]
    assert len({group.seed for group in groups}) == 6


def test_it_is_a_module_as_any_other() -> None:
    torch.manual_seed(0)
    net = SNGANEnergy(size=8, width=4, channels=1)
    robust = DefendedClassifier(Sum(), Purifier(prepare(net, temperature=0.1), steps=2, step_size=0.1), replicas=2)
    state = robust.state_dict()
    assert any(name.startswith("classifier.") for name in state)
    assert any(name.startswith("purifier.") for name in state)
    torch.manual_seed(1)
    other = SNGANEnergy(size=8, width=4, channels=1)
    copy = DefendedClassifier(Sum(), Purifier(prepare(other, temperature=0.1), steps=2, step_size=0.1), replicas=2)
    copy.load_state_dict(state)
    x = torch.rand(4, 1, 8, 8)
    assert torch.equal(robust(x, seeds=[0] * 4), copy(x, seeds=[0] * 4))
    assert all(p.grad is None and p.requires_grad for p in robust.parameters())
    robust.train()
    robust(x)
    assert robust.classifier.training


def test_double_precision_stays_double() -> None:
    robust = DefendedClassifier(Sum().double(), Purifier(gaussian(0.5), steps=2, step_size=0.1), replicas=2)
    leaf = torch.rand(2, 1, 3, 3, dtype=torch.float64, requires_grad=True)
    logits = robust(leaf)
    logits.sum().backward()
    assert logits.dtype == torch.float64
    assert leaf.grad is not None
    assert leaf.grad.dtype == torch.float64


def test_dropout_and_batch_statistics_are_off() -> None:
    classifier = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(9), nn.Dropout(), nn.Linear(9, 3))
    robust = DefendedClassifier(classifier, Purifier(gaussian(0.5), steps=1, step_size=0.1, seed=0), replicas=3)
    x = torch.rand(2, 1, 3, 3)
    assert torch.equal(robust(x), robust(x))
    torch.testing.assert_close(robust(x)[1:], robust(x[1:]))


def test_no_steps_are_the_classifier_itself() -> None:
    classifier, x = Sum(), torch.rand(3, 1, 4, 4)
    robust = undefended(classifier)
    assert torch.equal(robust(x, replicas=50), classifier(x))
    assert classifier.most == 3


def test_no_images_have_no_logits_of_as_many_classes() -> None:
    robust = DefendedClassifier(Sum(), Purifier(gaussian(0.5), steps=2, step_size=0.1), replicas=3)
    leaf = torch.zeros(0, 1, 3, 3, requires_grad=True)
    logits = robust(leaf)
    assert logits.shape == (0, 2)
    logits.sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.shape == leaf.shape


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_images_of_255_levels_are_refused(dtype: torch.dtype) -> None:
    purifier = Purifier(gaussian(0.5), steps=2, step_size=0.1)
    levels = (255 * torch.rand(2, 1, 3, 3)).to(dtype)
    for wrong in (
        lambda: purifier(levels),
        lambda: purifier.trajectory(levels, at=[1], seeds=[0, 1]),
        lambda: DefendedClassifier(Sum(), purifier)(levels),
        lambda: undefended(Sum())(levels),
    ):
        with pytest.raises(BadInput, match=r"images must be in \[-1, 1\], got values up to .*; scale pixels by"):
            wrong()


def test_states_a_little_outside_are_not() -> None:
    """Walked ones, and noise that walks begin at."""
    purifier = Purifier(gaussian(0.5), steps=2, step_size=0.1)
    assert purifier(5 * torch.ones(2, 1, 3, 3)).isfinite().all()
    assert purifier(torch.zeros(0, 1, 3, 3)).shape == (0, 1, 3, 3)


def test_a_purification_that_diverges_says_so() -> None:
    steep = lambda x: x.flatten(1).pow(4).sum(1) * 1e8  # noqa: E731
    with pytest.raises(Diverged, match="not finite after 20 steps"):
        Purifier(steep, steps=20, step_size=0.1)(torch.ones(2, 1, 2, 2))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Purifier(gaussian(1.0), steps=-1),
        lambda: Purifier(gaussian(1.0), step_size=0.0),
        lambda: Purifier(gaussian(1.0), batch=0),
        lambda: DefendedClassifier(Sum(), Purifier(gaussian(1.0)), replicas=0),
        lambda: DefendedClassifier(Sum(), Purifier(gaussian(1.0)), gradient="none"),
    ],
)
def test_mistakes(make: object) -> None:
    with pytest.raises(BadInput):
        make()  # type: ignore[operator]


def test_the_public_names() -> None:
    purifier = ebmlife.Purifier(gaussian(0.5), steps=1500, step_size=1e-2)
    robust = ebmlife.DefendedClassifier(Sum(), purifier, replicas=16, gradient="bpda")
    assert (purifier.steps, purifier.step_size, robust.replicas) == (1500, 1e-2, 16)


def test_a_model_makes_its_purifier_as_its_recipe_walks() -> None:
    model = ebmlife.load("zoo:digits-midrun")
    purifier = model.purifier()
    walk = model.recipe.langevin
    assert isinstance(purifier, Purifier)
    assert (purifier.steps, purifier.step_size, purifier.clip) == (
        model.recipe.sampling_steps,
        walk.step_size,
        walk.clip,
    )
    x, seeds = torch.zeros(3, *model.shape), [1, 2, 3]
    own = Purifier(model.energy, steps=5, step_size=walk.step_size, clip=walk.clip)
    assert torch.equal(model.purifier(5)(x, seeds=seeds), own(x, seeds=seeds))
    assert model.purifier(5, step_size=0.5, seed=3, batch=8).step_size == 0.5


@pytest.mark.parametrize("sampler", ["mala", "underdamped", "replica-exchange"])
def test_purifiers_with_other_samplers_show_the_chains_they_run(sampler: str) -> None:
    purifier, x = Purifier(gaussian(0.5), steps=6, step_size=0.2, sampler=sampler), torch.rand(3, 1, 4, 4)
    shown = purifier.trajectory(x, at=[2, 6], seeds=[1, 2, 3])
    assert torch.equal(shown[-1], purifier(x, seeds=[1, 2, 3]))
    torch.testing.assert_close(shown[-1][1:], purifier(x[1:], seeds=[2, 3]))  # whatever the rest of the batch
    with pytest.raises(BadInput, match=f"sampler langevin, got {sampler}"):
        DefendedClassifier(Sum(), purifier)
