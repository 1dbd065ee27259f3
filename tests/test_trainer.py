from typing import Any

import pytest
import torch
from conftest import small_digits
from torch import Tensor, nn

import ebmlife
from ebmlife.data import Batches, InMemory, digits
from ebmlife.errors import BadInput, Diverged
from ebmlife.nets import SNGANEnergy
from ebmlife.runs import build
from ebmlife.sampling.energy import Energy, gaussian, tempered
from ebmlife.sampling.loop import Info, Walk
from ebmlife.sampling.rng import Streams, normal
from ebmlife.sampling.schedule import Phase, Piecewise, constant
from ebmlife.training.chains import Fresh, Negatives, Persistent
from ebmlife.training.ebm import TrainableEnergy, Trainer, reconstruction
from ebmlife.training.learner import Learner
from ebmlife.training.starts import FromData, FromGenerator, Uniform


class Table(nn.Module):
    """An energy of three states, one number each."""

    def __init__(self, energies: list[float]) -> None:
        super().__init__()
        self.energies = nn.Parameter(torch.tensor(energies))

    def forward(self, x: Tensor) -> Tensor:
        return self.energies[x[:, 0].long()]


class Exact:
    """Negatives that are distributed exactly as the model is: each state as often as its probability says."""

    bank = None

    def __init__(self, counts: list[int]) -> None:
        self.x = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts)).float()[:, None]

    def step(self, energy: Energy, n: int, *, update: int = 0) -> Negatives:
        return Negatives(self.x, None, Info(torch.zeros(())))

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_likelihood_gradient_equals_autograd_where_the_normalizer_is_known(temperature: float) -> None:
    """-grad log-likelihood = mean grad U(x+) - E_model grad U(x-), against autograd of mean U(x+) + log Z."""
    counts = [1, 3, 4]  # of 8: the model's probabilities
    table = Table([-temperature * torch.tensor(c / 8).log().item() for c in counts])
    data = torch.tensor([[0.0]] * 5 + [[1.0]] * 2 + [[2.0]])
    reference = Table(table.energies.tolist())
    loss = tempered(reference, temperature)(data).mean() + torch.logsumexp(-reference.energies / temperature, 0)
    loss.backward()
    assert reference.energies.grad is not None

    ebm = Learner(table, torch.optim.SGD(table.parameters()), learning_rate=constant(1.0), ema=0.0)
    before = table.energies.detach().clone()
    energy = TrainableEnergy(ebm, temperature=temperature)
    Trainer(Batches(InMemory(data), size=8), Exact(counts), energy).step()
    torch.testing.assert_close(before - table.energies.detach(), reference.energies.grad)


def test_the_penalty_on_energies_is_in_units_of_the_network() -> None:
    """grad of (U(x+) - U(x-) + l2 (U(x+)^2 + U(x-)^2)) / T, means over each batch."""
    data, counts, temperature, l2 = torch.tensor([[0.0]] * 4), [0, 1, 3], 0.25, 0.3
    table = Table([2.0, -1.0, 3.0])
    reference = Table(table.energies.tolist())
    (of_data, of_samples), chains = (reference(x) for x in (data, Exact(counts).x)), Exact(counts)
    squares = of_data.square().mean() + of_samples.square().mean()
    ((of_data.mean() - of_samples.mean() + l2 * squares) / temperature).backward()
    assert reference.energies.grad is not None
    ebm = Learner(table, torch.optim.SGD(table.parameters()), learning_rate=constant(1.0), ema=0.0)
    before = table.energies.detach().clone()
    energy = TrainableEnergy(ebm, temperature=temperature)
    Trainer(Batches(InMemory(data), size=4), chains, energy, energy_l2=l2).step()
    torch.testing.assert_close(before - table.energies.detach(), reference.energies.grad)


class Quadratic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stiffness = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.stiffness * x[:, 0].square() / 2


def test_learning_ends_where_samples_have_the_variance_of_the_data() -> None:
    streams = Streams(0)
    data = 0.5 * torch.randn(4000, 1, generator=streams["data"])
    net = Quadratic()
    walk = Walk(steps=constant(20), step_size=0.3, noise=normal(streams["langevin"]))
    chains = Persistent(FromData(InMemory(data)), walk, streams, size=500)
    ebm = Learner(net, torch.optim.SGD(net.parameters()), learning_rate=constant(1.0), ema=0.9)
    trainer = Trainer(Batches(InMemory(data), size=250), chains, ebm)
    trainer.fit(400)
    # Discretised Langevin on k x^2 / 2 has variance (2 / k) / (2 - a), a = k step_size^2 / 2.
    k = ebm.ema.stiffness.item()
    assert (2 / k) / (2 - k * 0.3**2 / 2) == pytest.approx(data.var().item(), rel=0.1)


def test_data_noise_goes_on_positives_only() -> None:
    seen: list[Tensor] = []

    class Spy(Quadratic):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x.detach())
            return super().forward(x)

    net, streams = Spy(), Streams(0)
    data = InMemory(torch.zeros(64, 1))
    chains = Fresh(FromData(data), Walk(steps=constant(0), step_size=0.1), streams)
    ebm = Learner(net, torch.optim.SGD(net.parameters()), learning_rate=constant(0.1))
    batches = Batches(data, size=64, seed=0)
    noise = normal(streams["data noise"])
    Trainer(batches, chains, ebm, data_noise=0.3, noise=noise).step()
    positives, negatives = seen[-1].chunk(2)
    assert positives.std().item() == pytest.approx(0.3, rel=0.3)
    assert torch.equal(negatives, torch.zeros(64, 1))


def _trained(spelling: str) -> list[Tensor]:
    """The weights after two updates of one training, however its energy is given."""
    torch.manual_seed(0)
    net, streams, data = SNGANEnergy(size=8, width=4, channels=1), Streams(), digits()
    chains = Persistent(Uniform(data.shape), Walk(steps=2, step_size=0.05, noise=normal(streams["langevin"])), size=20)
    batches = Batches(data, size=8)
    if spelling == "network":
        trainer = Trainer(batches, chains, net)
    elif spelling == "energy":
        trainer = Trainer(batches, chains, TrainableEnergy(Learner(net, learning_rate=1e-4)))
    else:
        ebm = Learner(net, torch.optim.Adam(net.parameters(), fused=True), learning_rate=1e-4)
        trainer = Trainer(batches, chains, learned=net, energy=ebmlife.prepare(net), ebm=ebm)
    trainer.fit(2)
    return [weight.detach().clone() for weight in net.parameters()]


def test_an_energy_is_one_thing_however_it_is_given() -> None:
    for spelling in ("energy", "learned, energy and ebm"):
        assert all(torch.equal(a, b) for a, b in zip(_trained("network"), _trained(spelling), strict=True))


def test_fixed_terms_are_walked_on_and_not_learned() -> None:
    net, x = Quadratic(), torch.randn(5, 1)
    energy = TrainableEnergy(net, temperature=0.5, fixed=[gaussian(0.1), lambda x: 3 * x[:, 0]])
    torch.testing.assert_close(energy.learned(x), net(x) / 0.5)
    torch.testing.assert_close(energy.full(x), net(x) / 0.5 + x[:, 0] ** 2 / (2 * 0.1**2) + 3 * x[:, 0])
    assert energy.learner.net is net


def test_an_energy_that_cannot_learn_is_refused() -> None:
    data = InMemory(torch.zeros(8, 1))
    chains, batches = Fresh(FromData(data), Walk(steps=1, step_size=0.1)), Batches(data, size=8)
    for arguments in (
        {"energy": lambda x: x.sum(1)},
        {"energy": Quadratic(), "learned": Quadratic()},
        {"energy": TrainableEnergy(Quadratic()), "ebm": Learner(Quadratic())},
    ):
        with pytest.raises(BadInput, match=r"one energy.*TrainableEnergy.*ebm=Learner"):
            Trainer(batches, chains, **arguments)  # type: ignore[arg-type]


def test_reconstruction_is_the_sum_of_squares_and_has_no_gradient_into_the_walk() -> None:
    generated = torch.ones(2, 1, 2, 2, requires_grad=True)
    walked = torch.tensor([3.0, 0.0]).view(2, 1, 1, 1).expand(2, 1, 2, 2).clone().requires_grad_()
    loss = reconstruction(generated, walked)
    assert loss.item() == (4 * 4 + 4 * 1) / 2
    loss.backward()
    assert walked.grad is None
    torch.testing.assert_close(generated.grad, (generated - walked).detach())  # 2 (g - x) / 2 images


def test_generator_step_does_not_touch_the_energy() -> None:
    trainer = build.training(small_digits(langevin__steps="0", optimizer__learning_rate="1e-30")).trainer
    assert trainer.generator is not None
    before = [p.clone() for p in trainer.ebm.net.parameters()], [p.clone() for p in trainer.generator.net.parameters()]
    metrics = trainer.step()
    torch.testing.assert_close(before[0], list(trainer.ebm.net.parameters()))
    # A walk of no steps leaves x = g(z), up to batch statistics, and then there is little to learn.
    assert metrics.generator_loss is not None
    assert any(not torch.equal(a, b) for a, b in zip(before[1], trainer.generator.net.parameters(), strict=True))


def test_frozen_generator_stays_as_it_is() -> None:
    training = build.training(small_digits(generator__optimizer="none"))
    maker = training.model.generator
    assert maker is not None
    before = [p.clone() for p in maker.state_dict().values()]
    metrics = training.trainer.step()
    assert metrics.generator_loss is None
    assert all(torch.equal(a, b) for a, b in zip(before, maker.state_dict().values(), strict=True))
    assert not maker.training


def test_whole_training_with_p_1_equals_cooperative_learning() -> None:
    cooperative = build.training(small_digits(chains__kind="fresh")).trainer
    hybrid = build.training(small_digits(chains__rejuvenate="1", chains__rounds="none")).trainer
    for _ in range(3):
        assert cooperative.step() == hybrid.step()
    for a, b in ((cooperative.ebm, hybrid.ebm), (cooperative.generator, hybrid.generator)):
        assert a is not None
        assert b is not None
        pairs = zip(a.net.parameters(), b.net.parameters(), strict=True)
        assert all(torch.equal(p, q) for p, q in pairs)


def test_moving_average_and_learning_rate_are_the_recipes() -> None:
    net = Table([1.0, 2.0, 3.0])
    schedule = Piecewise((Phase(0, 1.0), Phase(1, 0.5)))
    learner = Learner(net, torch.optim.SGD(net.parameters()), learning_rate=schedule, ema=0.75)
    learner.descend(net.energies.sum(), update=0)  # energies - 1: the average begins here
    learner.descend(net.energies.sum(), update=1)  # energies - 0.5
    torch.testing.assert_close(net.energies.detach(), torch.tensor([-0.5, 0.5, 1.5]))
    torch.testing.assert_close(learner.ema.energies.detach(), torch.tensor([-0.125, 0.875, 1.875]))


def test_the_average_may_lengthen_over_training() -> None:
    net = Table([8.0, 8.0, 8.0])
    ema = Piecewise((Phase(0, 0.0), Phase(2, 0.5)))
    learner = Learner(net, torch.optim.SGD(net.parameters()), learning_rate=1.0, ema=ema)
    for update, expected in enumerate((7.0, 6.0, 5.5, 4.75)):  # weights are 7, 6, 5, 4
        learner.descend(net.energies.sum(), update=update)
        assert learner.ema.energies.tolist() == [expected] * 3


def test_clipping_bounds_the_norm_of_the_whole_gradient() -> None:
    net = Table([0.0, 0.0, 0.0])
    learner = Learner(net, torch.optim.SGD(net.parameters()), learning_rate=constant(1.0), clip=0.5)
    learner.descend((net.energies * torch.tensor([3.0, 4.0, 0.0])).sum(), update=0)
    torch.testing.assert_close(net.energies.detach(), torch.tensor([-0.3, -0.4, 0.0]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"explosion": "1e-12"}, "energy difference is .* at update 0"),
        ({"langevin__step_size": "9e8", "temperature": "1e-30"}, "energy of the samples is (nan|inf|-inf) at update 0"),
    ],
)
def test_divergence_says_what_happened_and_when(changes: dict[str, str], message: str) -> None:
    trainer = build.training(small_digits(**changes)).trainer
    before = [p.clone() for p in trainer.ebm.net.parameters()]
    with pytest.raises(Diverged, match=message):
        trainer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.ebm.net.parameters(), strict=True))


def test_non_finite_gradient_is_a_divergence() -> None:
    net = Table([1.0, 0.0, 0.0])
    learner = Learner(net, torch.optim.SGD(net.parameters()), learning_rate=constant(1.0))
    with pytest.raises(Diverged, match=r"gradient of Table's weights is (nan|inf) at update 3"):
        learner.descend(net.energies.sqrt().sum(), update=3)
    assert net.energies.isfinite().all()


def test_initial_states_use_the_current_generator() -> None:
    training = build.training(small_digits(chains__kind="fresh", langevin__steps="0"))
    assert training.trainer.generator is not None
    assert isinstance(training.trainer.chains, Fresh)
    assert isinstance(training.trainer.chains.start, FromGenerator)
    assert training.trainer.chains.start.generator is training.trainer.generator.net
