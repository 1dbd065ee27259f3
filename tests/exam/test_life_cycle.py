"""Verdicts on energies that are known, and what an exam must keep to."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ebmlife.data import Mixture, digits
from ebmlife.errors import BadInput, Diverged
from ebmlife.exam import LifeCycle, life_cycle, record
from ebmlife.exam.features import Features
from ebmlife.exam.reference import random_subset
from ebmlife.sampling.energy import Energy, Score, gaussian, gradient

TOY = Mixture()


def draws(n: int, seed: int = 0) -> Tensor:
    return TOY.sample(n, rng=torch.Generator().manual_seed(seed))


class Exact:
    """The toy's own energy and its gradient, the mean of (x - mode) / scale^2 over the modes as they explain x."""

    def __call__(self, x: Tensor) -> Tensor:
        return -TOY.log_density(x)

    def gradient(self, x: Tensor) -> Tensor:
        modes = TOY.modes.float()
        share = (-torch.cdist(x, modes).square() / (2 * TOY.scale**2)).softmax(1)
        return (x - share @ modes) / TOY.scale**2


class Bump:
    """The density weight * N(0, 0.1^2 I) + (1 - weight) * N(0, I) in 8 dimensions, by its energy and gradient.

    A model like this one has a likelihood on data from N(0, 0.1^2 I) that is at most -log(weight) nats below the best,
    and the rest of its mass is elsewhere, behind a barrier.
    """

    def __init__(self, weight: float) -> None:
        self.weights, self.scales = torch.tensor([weight, 1 - weight]), torch.tensor([0.1, 1.0])

    def _parts(self, x: Tensor) -> Tensor:
        square = x.square().sum(1, keepdim=True)
        return self.weights.log() - square / (2 * self.scales**2) - 4 * (2 * math.pi * self.scales**2).log()

    def __call__(self, x: Tensor) -> Tensor:
        return -torch.logsumexp(self._parts(x), 1)

    def gradient(self, x: Tensor) -> Tensor:
        return x * (self._parts(x).softmax(1) / self.scales**2).sum(1, keepdim=True)

    @staticmethod
    def data(n: int) -> Tensor:
        return 0.1 * torch.randn(n, 8, generator=torch.Generator().manual_seed(0))


def test_these_energies_are_what_they_say() -> None:
    energy, x = Bump(0.3), torch.randn(6, 8)
    torch.testing.assert_close(energy.gradient(x), gradient(energy.__call__, x))
    torch.testing.assert_close(Exact().gradient(x[:, :2]), gradient(Exact().__call__, x[:, :2]), rtol=1e-4, atol=1e-2)


def test_an_exact_mixture_passes_as_longrun() -> None:
    cycle = life_cycle(Exact(), draws(64), steps=50_000, step_size=0.02, data=draws(2000, seed=1))
    assert (cycle.verdict, cycle.stable_until) == ("longrun", 50_000)
    assert any("not mixed" in reason for reason in cycle.reasons)  # the modes are far apart: that is said too
    assert cycle.steps[-1] == 50_000
    energy = cycle.metrics["energy"][-1]
    assert energy == pytest.approx(-TOY.log_density(draws(4000, seed=2)).mean().item(), abs=0.5)


def test_a_leaky_energy_fails() -> None:
    """A tenth of the mass elsewhere: chains that begin at the data stay for thousands of steps, then leave."""
    cycle = life_cycle(Bump(0.9), Bump.data(64), steps=60_000, step_size=0.05, data=Bump.data(2000))
    assert cycle.verdict == "midrun"
    assert 1000 <= cycle.stable_until < 50_000
    assert "degraded at" in cycle.reasons[0]


def test_a_leakier_one_fails_sooner() -> None:
    cycle = life_cycle(Bump(1e-4), Bump.data(64), steps=5000, step_size=0.05, data=Bump.data(2000))
    assert cycle.verdict == "shortrun"


def test_the_sealed_bump_passes() -> None:
    cycle = life_cycle(gaussian(0.1), Bump.data(64), steps=50_000, step_size=0.05)
    assert cycle.verdict == "longrun"
    assert cycle.reasons[1:] == []  # one region: chains mix, and nothing drifts
    assert cycle.metrics["rhat_energy"][-1] == pytest.approx(1, abs=0.05)


def digits_and_noise() -> tuple[Tensor, Tensor]:
    data = random_subset(digits(), 200)
    return data, data[:16] + 0.1 * torch.randn(16, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def test_images_that_saturate_are_caught_by_their_pixels() -> None:
    """An energy that falls linearly drives pixels outwards, at a rate that is known: step_size^2 / 2 a step."""
    data, x0 = digits_and_noise()
    cycle = life_cycle(lambda x: -x.abs().flatten(1).sum(1), x0, steps=2000, step_size=0.05, data=data, data_noise=0.1)
    assert cycle.verdict == "shortrun"
    assert "outside" in cycle.reasons[0] or "contrast" in cycle.reasons[0]
    first, last = (cycle.metrics["contrast"][i] for i in (0, -1))
    assert first is not None
    assert last is not None
    assert last > 2 * first


def test_images_that_fade_are_caught_too() -> None:
    data, x0 = digits_and_noise()
    cycle = life_cycle(gaussian(0.05), x0, steps=3000, step_size=0.02, data=data, data_noise=0.1)
    assert cycle.verdict == "shortrun"
    assert any("below" in reason for reason in cycle.reasons)


def test_a_score_without_an_energy_gives_the_same_chains() -> None:
    energy = Bump(0.3)
    score = life_cycle(Score(lambda x: -energy.gradient(x)), Bump.data(8), steps=300, step_size=0.05)
    whole = life_cycle(energy, Bump.data(8), steps=300, step_size=0.05)
    assert torch.equal(score.states, whole.states)
    assert "energy" not in score.metrics
    assert whole.metrics["energy"][-1] == pytest.approx(energy(whole.states).mean().item(), rel=1e-5)


def test_class_agreement_begins_at_1_and_is_lost_with_the_mode() -> None:
    modes = TOY.modes.float()
    flat = life_cycle(gaussian(2.0), draws(64), steps=3000, step_size=0.1, classifier=lambda x: -torch.cdist(x, modes))
    assert flat.metrics["agreement"][0] == 1
    assert flat.metrics["agreement"][-1] == pytest.approx(1 / 8, abs=0.15)


def test_without_data_the_start_is_what_it_is_compared_with() -> None:
    cycle = life_cycle(gaussian(0.1), Bump.data(64), steps=500, step_size=0.05)
    assert cycle.metrics["distance"][0] == pytest.approx(0, abs=1e-6)
    assert cycle.settings["data"] == 64


def test_an_energy_that_diverges_is_a_verdict_not_a_crash() -> None:
    cycle = life_cycle(lambda x: -x.pow(4).sum(1), Bump.data(8) * 10, steps=2000, step_size=0.3)
    assert cycle.verdict == "shortrun"
    assert any("not finite" in reason for reason in cycle.reasons)
    assert cycle.complete


def test_finite_states_of_infinite_energy_end_a_life_that_is_saved_all_the_same(tmp_path: Path) -> None:
    def cliff(x: Tensor) -> Tensor:
        return torch.where(x.abs().amax(1) > 1, torch.inf, 0.0) + 0 * x.sum(1)

    x0 = 0.1 * torch.randn(8, 2, generator=torch.Generator().manual_seed(0))
    cycle = life_cycle(cliff, x0, steps=1000, step_size=0.2)
    assert "an energy is not finite" in cycle.reasons[-1]
    assert 1 < cycle.steps[-1] < 1000
    record.save(cycle, tmp_path)
    assert record.load(tmp_path).metrics == cycle.metrics
    with pytest.raises(Diverged, match="an energy is not finite"):
        life_cycle(cliff, x0 + 5, steps=10)


def test_finite_states_with_an_infinite_gradient_do_so_too(tmp_path: Path) -> None:
    """Where |grad E| overflows, the states may not have yet."""
    cycle = life_cycle(Score(lambda x: 5000 * x), Bump.data(8), steps=400, step_size=0.02)  # twice as far each step
    assert any(reason.startswith("the gradient is not finite at step") for reason in cycle.reasons)
    assert cycle.verdict == "shortrun"
    record.save(cycle, tmp_path)
    assert record.load(tmp_path).metrics == cycle.metrics


def test_an_evaluation_does_not_change_the_model(tmp_path: Path) -> None:
    """A user's network may be in training mode, where BatchNorm learns from all that it sees."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1), nn.Flatten(0))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    life_cycle(net, draws(16), steps=20)
    assert net.training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


@pytest.mark.parametrize("shape", [(1,), (5, 8, 8), (2, 8, 8), (3,)])
def test_states_of_any_shape_are_examined_and_drawn(tmp_path: Path, shape: tuple[int, ...]) -> None:
    x0 = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0))
    cycle = life_cycle(gaussian(1.0), x0, steps=10)
    assert all(file.stat().st_size > 0 for file in record.save(cycle, tmp_path))


def test_stopped_and_called_again_gives_the_same_exam(tmp_path: Path) -> None:
    def exam(folder: Path | None, stop_after: int = 10**9) -> LifeCycle:
        calls = iter(range(10**9))
        return life_cycle(
            *(Bump(0.3), Bump.data(16)),
            steps=1000,
            step_size=0.05,
            batch=5,
            folder=folder,
            stopping=lambda: next(calls) >= stop_after,
        )

    part = exam(tmp_path, stop_after=20)
    assert not part.complete
    again, whole = exam(tmp_path), exam(None)
    assert again.complete
    assert again.steps == whole.steps
    assert again.metrics == whole.metrics
    assert torch.equal(again.states, whole.states)
    assert torch.equal(again.strip, whole.strip)


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    data, x0 = digits_and_noise()
    cycle = life_cycle(gaussian(0.5), x0, steps=400, step_size=0.02, data=data, shown=4)
    files = record.save(cycle, tmp_path)
    assert all(file.stat().st_size > 0 for file in files)
    back = record.load(tmp_path)
    for name in ("strip", "states"):
        assert torch.equal(getattr(back, name), getattr(cycle, name))
    plain = {"strip": torch.empty(0), "states": torch.empty(0)}
    assert replace(back, **plain).__repr__() == replace(cycle, **plain).__repr__()
    assert cycle.strip.shape == (len(cycle.steps), 4, 1, 8, 8)
    with pytest.raises(BadInput, match="no finished exam"):
        record.load(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("x0", "steps", "message"),
    [
        (torch.zeros(1, 2), 10, "at least 2 start states"),
        (torch.zeros(5, dtype=torch.int64), 10, "at least 2 start states"),
        (torch.full((4, 2), float("nan")), 10, "not finite"),
        (torch.zeros(4, 2), 0, "at least 1 step"),
    ],
)
def test_what_cannot_be_examined_is_refused_first(x0: Tensor, steps: int, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        life_cycle(gaussian(1.0), x0, steps=steps)


@pytest.mark.parametrize(
    ("energy", "message"),
    [
        (
            lambda x: x.sum(1, keepdim=True),
            r"energy of states \(4, 2\) must be a tensor of the shape \(4,\), got \(4, 1\)",
        ),
        (lambda x: x.sum(), r"got \(\)"),
        (lambda x: 3.0, "got float"),
        (Score(lambda x: x.sum(1)), r"gradient of states \(4, 2\) must be a tensor of the shape \(4, 2\), got \(4,\)"),
    ],
)
def test_what_does_not_return_an_energy_for_each_state_is_refused_first(energy: Energy, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        life_cycle(energy, torch.zeros(4, 2), steps=10)


def test_data_of_another_shape_are_refused_and_of_another_type_taken() -> None:
    with pytest.raises(BadInput, match=r"data have shape \(3,\), but the start states \(2,\)"):
        life_cycle(gaussian(1.0), torch.randn(4, 2), steps=10, data=torch.zeros(9, 3))
    with pytest.raises(BadInput, match=r"have shape \(1, 8, 8\), but the start states \(1, 16, 16\)"):
        life_cycle(gaussian(1.0), torch.randn(4, 1, 16, 16), steps=10, data=digits())
    assert life_cycle(gaussian(1.0), torch.randn(4, 2).double(), steps=10, data=torch.randn(9, 2)).complete


def test_an_exam_goes_on_with_the_same_data_and_features_only(tmp_path: Path) -> None:
    x0, stop = torch.randn(8, 2, generator=torch.Generator().manual_seed(0)), [False, False, True]
    same = {"steps": 1000, "step_size": 0.1, "folder": tmp_path}
    assert not life_cycle(gaussian(1.0), x0, data=x0, **same, stopping=lambda: stop.pop(0)).complete  # type: ignore[arg-type]
    for change, said in (
        ({"data": 50 * x0}, "data: "),
        ({"data": x0, "shown": 2}, "shown: 8 -> 2"),
        ({"data": x0, "data_noise": 0.1}, "data_noise: "),
        ({"data": x0, "features": Features("other", lambda x: x)}, "features: "),
        ({"data": x0, "classifier": lambda x: x}, "classes: False -> True"),
    ):
        with pytest.raises(BadInput, match=said):
            life_cycle(gaussian(1.0), x0, **same, **change)  # type: ignore[arg-type]
    assert life_cycle(gaussian(1.0), x0, data=x0, **same).complete  # type: ignore[arg-type]


def test_an_exam_saved_with_earlier_names_is_read(tmp_path: Path) -> None:
    cycle = life_cycle(gaussian(0.5), torch.randn(4, 2, generator=torch.Generator().manual_seed(0)), steps=5)
    record.save(cycle, tmp_path)
    file = tmp_path / "life-cycle.json"
    saved = json.loads(file.read_text())
    assert saved["figures"] == cycle.metrics == cycle.figures  # the key of the first files is kept
    saved["metrics"] = saved.pop("figures")
    file.write_text(json.dumps(saved))
    assert record.load(tmp_path).metrics == cycle.metrics
