"""Exact answers for the sampling kernels. Tolerances are 5 standard errors of N independent chains, unless said."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from scipy.stats import ks_2samp
from torch import Tensor

from ebmlife import langevin, seeded
from ebmlife.data.toys import Mixture
from ebmlife.errors import BadInput, Diverged
from ebmlife.sampling.energy import Energy, Score, gaussian
from ebmlife.sampling.kernels import MALA, SAMPLERS, Kernel, Langevin, ReplicaExchange, Underdamped, make_kernel
from ebmlife.sampling.kernels.mala import propose
from ebmlife.sampling.kernels.metropolis import Point, evaluate, select
from ebmlife.sampling.kernels.replica_exchange import exchange
from ebmlife.sampling.kernels.underdamped import leapfrog
from ebmlife.sampling.loop import run_kernel, sample
from ebmlife.sampling.rng import PerImageNoise

S = 0.8  # standard deviation of the Gaussian
GAUSSIAN = gaussian(S)
OVERLAPPING = Mixture(count=3, radius=0.5, scale=0.3)  # low barriers: a test can see whether masses stay
EIGHT = Mixture()  # width 0.06: neighbors are separated by about 11 nats
ADJUSTED: list[Kernel[Any]] = [
    MALA(0.9, warm_up=0),
    MALA(0.9, warm_up=0, clip=0.2),
    Underdamped(0.6, warm_up=0),
    Underdamped(0.6, warm_up=0, clip=0.05),
    ReplicaExchange(0.9, temperatures=(1.0, 3.0, 9.0), warm_up=0),
]


def of_toy(toy: Mixture) -> Energy:
    return lambda x: -toy.log_density(x)


def quartic(x: Tensor) -> Tensor:
    """A smooth energy without symmetry, whose proposals are often rejected."""
    return x.pow(4).flatten(1).sum(1) + x.flatten(1).sum(1).sin()


def walk(kernel: Kernel[Any], energy: Energy, x: Tensor, *, steps: int, seed: int = 0) -> Any:
    noise = seeded(seed)
    return run_kernel(kernel, energy, kernel.init(energy, x, noise), steps=steps, noise=noise)[0]


def check_moments(x: Tensor, variance: float) -> None:
    """Mean and variance of independent normals: their standard errors are s / sqrt(N) and sqrt(2 / N) s^2."""
    n = x.numel()
    assert x.mean().item() == pytest.approx(0, abs=5 * math.sqrt(variance / n))
    assert x.var().item() == pytest.approx(variance, rel=5 * math.sqrt(2 / n))


@pytest.mark.parametrize("step_size", [0.5, 1.0])
def test_mala_has_no_bias_where_that_of_langevin_is_known(step_size: float) -> None:
    """Langevin's variance is s^2 / (1 - h^2 / (4 s^2)): 1.11 s^2 and 1.64 s^2 here, and MALA's is s^2."""
    x = S * seeded(1)(torch.empty(20_000, 1))
    check_moments(walk(Langevin(step_size), GAUSSIAN, x, steps=60).x, S**2 / (1 - step_size**2 / (4 * S**2)))
    check_moments(walk(MALA(step_size, warm_up=0), GAUSSIAN, x, steps=60).x, S**2)


@pytest.mark.parametrize("kernel", ADJUSTED, ids=repr)
def test_chains_that_start_at_a_gaussian_stay_there(kernel: Kernel[Any]) -> None:
    x = S * seeded(2)(torch.empty(8_000, 2))
    state = kernel.init(GAUSSIAN, x, seeded(3))
    if isinstance(kernel, ReplicaExchange):  # hot replicas start at their own targets, of variance T s^2
        state = _spread(kernel, state, x)
    state, _ = run_kernel(kernel, GAUSSIAN, state, steps=30, noise=seeded(4))
    check_moments(state.x, S**2)
    assert abs((state.x[:, 0] * state.x[:, 1]).mean().item()) < 5 * S**2 / math.sqrt(len(x))
    assert ks_2samp(state.x[:, 0], S * seeded(5)(torch.empty(8_000))).pvalue > 1e-4


def _spread(kernel: ReplicaExchange, state: Any, x: Tensor) -> Any:
    replicas = x[:, None] * torch.tensor(kernel.temperatures).sqrt()[None, :, None]
    for rung in range(1, len(kernel.temperatures)):  # independent of the cold ones
        replicas[:, rung] = replicas[:, rung].roll(rung, 0)
    point = evaluate(GAUSSIAN, replicas.flatten(0, 1))
    gradient = point.gradient.view_as(replicas)
    return replace(state, replicas=replicas, energy=point.energy.view(replicas.shape[:2]), gradient=gradient)


def test_all_temperatures_of_a_gaussian_keep_their_own_variance() -> None:
    kernel = ReplicaExchange(0.9, temperatures=(1.0, 3.0, 9.0), warm_up=0)
    x = S * seeded(2)(torch.empty(8_000, 2))
    state, _ = run_kernel(
        kernel, GAUSSIAN, _spread(kernel, kernel.init(GAUSSIAN, x, seeded(3)), x), steps=30, noise=seeded(4)
    )
    for rung, temperature in enumerate(kernel.temperatures):
        check_moments(state.replicas[:, rung], temperature * S**2)


@pytest.mark.parametrize("kernel", [MALA(0.4, warm_up=0), Underdamped(0.3, warm_up=0)], ids=repr)
def test_chains_that_start_at_a_mixture_stay_there(kernel: Kernel[Any]) -> None:
    n = 8_000
    x, fresh = (OVERLAPPING.sample(n, rng=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    state = walk(kernel, of_toy(OVERLAPPING), x, steps=40)
    assert (state.x != x).any(1).double().mean() > 0.99  # they have moved
    for axis in range(2):
        assert ks_2samp(state.x[:, axis], fresh[:, axis]).pvalue > 1e-4
    exact = [(OVERLAPPING.region(y) == 0).double().mean().item() for y in (state.x, fresh)]
    assert exact[0] == pytest.approx(exact[1], abs=5 * math.sqrt(2 * (1 / 3) * (2 / 3) / n))


def test_the_ratio_of_mala_is_that_of_the_definition() -> None:
    """log pi(y) q(x | y) - log pi(x) q(y | x), with q written out, in float64; also clipped and tempered."""
    x, z = seeded(1)(torch.empty(2, 50, 3, 2, dtype=torch.float64))
    h = torch.linspace(0.1, 0.6, 50, dtype=torch.float64)
    temperatures = torch.linspace(1, 4, 50, dtype=torch.float64)
    for clip in (None, 0.05):
        proposed, log_ratio = propose(quartic, evaluate(quartic, x), h, z, clip=clip, temperatures=temperatures)
        for i in range(len(x)):
            expected = _log_ratio(x[i], proposed.x[i], h[i].item(), clip, temperatures[i].item())
            assert log_ratio[i].item() == pytest.approx(expected, rel=1e-9, abs=1e-9)


def _log_ratio(x: Tensor, y: Tensor, h: float, clip: float | None, temperature: float) -> float:
    def mean(a: Tensor) -> Tensor:
        drift = h**2 / 2 * (4 * a**3 + a.sum().cos()) / temperature
        return a - (drift if clip is None else drift * min(1.0, clip / drift.norm().item()))

    def log_q(b: Tensor, a: Tensor) -> float:
        return -(b - mean(a)).square().sum().item() / (2 * h**2)

    energies = (quartic(x[None]) - quartic(y[None])).item() / temperature
    return energies + log_q(x, y) - log_q(y, x)


def test_leapfrog_is_reversible_and_its_ratio_is_that_of_the_hamiltonian() -> None:
    x, p = seeded(1)(torch.empty(2, 50, 4, dtype=torch.float64))
    for clip in (None, 0.01):
        start, h = evaluate(quartic, x), torch.tensor(0.2, dtype=torch.float64)
        end, moved, log_ratio = leapfrog(quartic, start, p, h, clip=clip)
        before, after = start.energy + p.square().sum(1) / 2, end.energy + moved.square().sum(1) / 2
        torch.testing.assert_close(log_ratio, before - after)
        back, reversed_, _ = leapfrog(quartic, end, -moved, h, clip=clip)
        torch.testing.assert_close(back.x, x)
        torch.testing.assert_close(reversed_, -p)


def test_strong_friction_is_mala() -> None:
    """With p ~ N(0, I) anew, x + h (p - h/2 grad E(x)) is the Langevin proposal, and the ratios agree."""
    x, z = seeded(1)(torch.empty(2, 50, 4, dtype=torch.float64))
    start, h = evaluate(quartic, x), torch.tensor(0.2, dtype=torch.float64)
    proposed, log_ratio = propose(quartic, start, h.expand(50), z)
    moved, _, kinetic = leapfrog(quartic, start, z, h)
    torch.testing.assert_close(moved.x, proposed.x)
    torch.testing.assert_close(kinetic, log_ratio)


def test_swaps_follow_their_probabilities_and_keep_energies_with_their_states() -> None:
    n, ladder = 20_000, torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
    energy = torch.tensor([1.0, 1.5, 4.0], dtype=torch.float64).repeat(n, 1)
    x = energy[..., None].clone()  # a state carries its own energy
    for odd, (cold, hot) in ((False, (0, 1)), (True, (1, 2))):
        swapped, rates = exchange(Point(x, energy, 2 * x), ladder, seeded(1), odd=odd)
        exact = math.exp((1 / ladder[cold] - 1 / ladder[hot]) * (energy[0, cold] - energy[0, hot]))
        assert rates[cold].item() == pytest.approx(exact)
        share = (swapped.energy[:, cold] == energy[0, hot]).double().mean().item()
        assert share == pytest.approx(exact, abs=5 * math.sqrt(exact * (1 - exact) / n))
        assert torch.equal(swapped.x[..., 0], swapped.energy)
        assert torch.equal(swapped.gradient, 2 * swapped.x)
        assert torch.equal(swapped.energy.sort(1).values, energy)
        left_alone = 2 if cold == 0 else 0
        assert torch.equal(swapped.energy[:, left_alone], energy[:, left_alone])


@pytest.mark.parametrize(("name", "target"), [("mala", 0.574), ("underdamped", 0.9), ("replica-exchange", 0.574)])
@pytest.mark.parametrize("step_size", [1e-3, 30.0])
def test_the_warm_up_finds_the_step_size_and_then_leaves_it(name: str, target: float, step_size: float) -> None:
    kernel = make_kernel(name, GAUSSIAN, step_size=step_size)
    noise = seeded(1)
    state = kernel.init(GAUSSIAN, S * noise(torch.empty(200, 16)), noise)
    state, _ = run_kernel(kernel, GAUSSIAN, state, steps=500, noise=noise)
    fixed = kernel.report(state)
    assert "acceptance" not in fixed  # the warm-up does not count
    state, info = run_kernel(kernel, GAUSSIAN, state, steps=300, noise=noise)
    found = kernel.report(state)
    assert found["step_size"] == fixed["step_size"]
    # The last gains of the warm-up are 500^-0.6 = 0.024, so the step size is off by a few percent.
    assert found["acceptance"] == pytest.approx(target, abs=0.03)
    assert info.acceptance is not None
    assert info.acceptance.mean().item() == pytest.approx(found["acceptance"])


def test_the_ladder_is_chosen_for_the_swap_rate_and_then_fixed() -> None:
    kernel = ReplicaExchange(0.1, temperatures=(1.0, 1.01, 20.0))
    state = walk(kernel, GAUSSIAN, S * seeded(1)(torch.empty(200, 16)), steps=1000)
    found = kernel.report(state)
    assert all(0.23 < rate < 0.4 for rate in found["swap_rates"])
    assert found["temperatures"][0] == 1
    assert found["temperatures"] == walk_report(kernel, steps=500)["temperatures"]
    # All temperatures of a Gaussian have the same heat capacity, so the ladder is geometric.
    first, second = found["temperatures"][1], found["temperatures"][2] / found["temperatures"][1]
    assert first == pytest.approx(second, rel=0.1)


def walk_report(kernel: ReplicaExchange, *, steps: int) -> dict[str, Any]:
    return kernel.report(walk(kernel, GAUSSIAN, S * seeded(1)(torch.empty(200, 16)), steps=steps))


def test_replica_exchange_finds_the_masses_of_eight_modes_and_langevin_does_not() -> None:
    """From one mode. 1,024 exact draws have a total variation of about 0.033 by chance."""
    x = EIGHT.modes[:1].float().repeat(1024, 1)
    assert _variation(langevin(of_toy(EIGHT), x, steps=1000, step_size=0.03, noise=seeded(0))[0]) > 0.8
    kernel = ReplicaExchange(0.03, temperatures=(1.0, 2.0, 4.0))
    state = walk(kernel, of_toy(EIGHT), x, steps=1000)
    assert _variation(state.x) < 0.1
    assert all(0.23 < rate < 0.4 for rate in kernel.report(state)["swap_rates"])


def _variation(x: Tensor) -> float:
    masses = torch.bincount(EIGHT.region(x), minlength=8) / len(x)
    return (masses - 1 / 8).abs().sum().item() / 2


@pytest.mark.parametrize("name", SAMPLERS)
def test_resumed_is_uninterrupted_to_the_bit(name: str) -> None:
    kernel: Kernel[Any] = make_kernel(name, quartic, step_size=0.3, warm_up=10)
    x = seeded(1)(torch.empty(6, 3, 2))
    whole = walk(kernel, quartic, x, steps=25, seed=7)
    for interrupted in (4, 10, 17):
        noise = seeded(7)
        state, _ = run_kernel(kernel, quartic, kernel.init(quartic, x, noise), steps=interrupted, noise=noise)
        saved = state.state_dict()
        run_kernel(kernel, quartic, state, steps=1, noise=seeded(0))  # does not change what was saved
        resumed = kernel.init(quartic, torch.zeros_like(x), seeded(8))
        resumed.load_state_dict(saved)
        resumed, _ = run_kernel(kernel, quartic, resumed, steps=25 - interrupted, noise=noise)
        assert all(torch.equal(value, resumed.state_dict()[key]) for key, value in whole.state_dict().items())
    with pytest.raises(BadInput, match="does not fit"):
        kernel.init(quartic, x[:4], seeded(8)).load_state_dict(saved)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_chain_does_not_depend_on_the_others_of_its_batch(name: str) -> None:
    x = seeded(1)(torch.empty(4, 3))
    both, _ = sample(name, quartic, x, steps=20, step_size=0.3, noise=PerImageNoise([5, 6], [2, 2]))
    alone, _ = sample(name, quartic, x[2:], steps=20, step_size=0.3, noise=PerImageNoise([6], [2]))
    torch.testing.assert_close(both[2:], alone)


def test_langevin_is_the_loop_over_its_kernel_to_the_bit() -> None:
    x = seeded(1)(torch.empty(5, 3, 2))
    expected, info = langevin(quartic, x, steps=9, step_size=0.1, noise=seeded(2), clip=0.02)
    kernel = Langevin(0.1, clip=0.02)
    state, found = run_kernel(kernel, quartic, kernel.init(quartic, x, seeded(3)), steps=9, noise=seeded(2))
    assert torch.equal(state.x, expected)
    assert torch.equal(found.gradient, info.gradient)
    assert found.acceptance is None
    named, _ = sample("langevin", quartic, x, steps=9, step_size=0.1, noise=seeded(2), clip=0.02)
    assert torch.equal(named, expected)


@pytest.mark.parametrize("name", ["mala", "underdamped", "replica-exchange"])
def test_a_rejected_move_keeps_the_state_exactly(name: str) -> None:
    """Everything away from the start has energy infinity."""
    x = seeded(1)(torch.empty(4, 3))
    start = x.clone()

    def box(y: Tensor) -> Tensor:
        inside = (y[:, None] == start).all(-1).any(-1)
        return torch.where(inside, y.square().sum(1), torch.inf)

    kernel: Kernel[Any] = make_kernel(name, box, step_size=0.1, warm_up=0)
    noise = seeded(2)
    state, info = run_kernel(kernel, box, kernel.init(box, x, noise), steps=5, noise=noise)
    assert torch.equal(state.x, start)
    assert torch.equal(x, start)
    assert torch.equal(info.acceptance, torch.zeros(4))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["mala", "underdamped", "replica-exchange"])
def test_walls_are_not_crossed_and_need_no_gradient(name: str) -> None:
    """E = -log(1 - x) is infinite from 1 on, where autograd's gradient is NaN: such proposals are rejected."""
    wall = lambda x: x.square().sum(1) - (1 - x[:, 0]).clamp_min(0).log()  # noqa: E731
    x, info = sample(name, wall, torch.zeros(50, 2), steps=100, step_size=0.7, noise=seeded(1))
    assert (x[:, 0] < 1).all()
    assert (x != 0).all()
    assert info.acceptance is not None
    assert info.acceptance.mean() < 0.98


def test_accepted_and_rejected_chains_are_told_apart() -> None:
    old, new = evaluate(quartic, torch.zeros(2, 3)), evaluate(quartic, torch.ones(2, 3))
    chosen = select(torch.tensor([True, False]), new, old)
    assert torch.equal(chosen.x, torch.tensor([[1.0] * 3, [0.0] * 3]))
    assert torch.equal(chosen.energy, torch.stack([new.energy[0], old.energy[1]]))
    assert torch.equal(chosen.gradient, torch.stack([new.gradient[0], old.gradient[1]]))


@pytest.mark.parametrize("name", ["mala", "underdamped", "replica-exchange"])
@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_energies_that_are_no_numbers_raise(name: str, value: float) -> None:
    def broken(x: Tensor) -> Tensor:
        return torch.where(x[:, 0] > 0.1, value, x.square().sum(1))

    with pytest.raises(Diverged, match="energy of a proposed"):
        sample(name, broken, torch.zeros(8, 2), steps=50, step_size=0.5, noise=seeded(1))
    with pytest.raises(Diverged, match="initial"):
        sample(name, broken, torch.ones(8, 2), steps=1, step_size=0.5, noise=seeded(1))


@pytest.mark.parametrize("name", ["mala", "underdamped", "replica-exchange"])
def test_scores_take_langevin_only(name: str) -> None:
    score = Score(lambda x: -x)
    with pytest.raises(BadInput, match=f"{name} needs an energy.*use the sampler langevin"):
        sample(name, score, torch.zeros(2, 2), steps=1, step_size=0.1)
    sample("langevin", score, torch.zeros(2, 2), steps=1, step_size=0.1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MALA(0.0), "mala needs a step_size above 0, got 0"),
        (lambda: MALA(0.1, target=1.0), "between 0 and 1"),
        (lambda: Underdamped(0.1, friction=0), "friction above 0"),
        (lambda: ReplicaExchange(0.1, temperatures=(1.0,)), "at least 2 temperatures"),
        (lambda: ReplicaExchange(0.1, temperatures=(2.0, 3.0)), "start at 1"),
        (lambda: make_kernel("mela", GAUSSIAN, step_size=0.1), "did you mean 'mala'"),
        (lambda: sample("mala", GAUSSIAN, torch.zeros(4, 2), steps=-1, step_size=0.1), "must not be negative"),
        (lambda: sample("mala", lambda x: x, torch.zeros(4, 2), steps=1, step_size=0.1), r"shape \(4,\)"),
    ],
)
def test_impossible_samplers_are_refused(make: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make()
