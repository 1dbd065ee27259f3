"""One contract for all chains, then what is particular to each."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from ebmlife.data import digits
from ebmlife.errors import BadInput
from ebmlife.nets import SNGANGenerator
from ebmlife.sampling.energy import gaussian
from ebmlife.sampling.loop import Walk
from ebmlife.sampling.rng import Streams, normal
from ebmlife.sampling.schedule import Phase, Piecewise, constant
from ebmlife.training.chains import BurnIn, Chains, Fresh, Persistent
from ebmlife.training.starts import (
    Augmented,
    Coarse,
    Downsampled,
    FromData,
    FromGenerator,
    InitialStates,
    Start,
    Uniform,
)

SHAPE = (1, 8, 8)
ENERGY = gaussian(0.5)


def walk(streams: Streams, steps: int = 2) -> Walk:
    return Walk(steps=constant(steps), step_size=0.1, noise=normal(streams["langevin"]))


def generator() -> SNGANGenerator:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return SNGANGenerator(size=8, width=4, channels=1, latent=3, batch_norm=False)


def persistent(start: Callable[[], Start], **options: object) -> Callable[[Streams], Chains]:
    return lambda streams: Persistent(start(), walk(streams), streams, size=30, **options)  # type: ignore[arg-type]


def fresh(start: Callable[[], Start]) -> Callable[[Streams], Chains]:
    return lambda streams: Fresh(start(), walk(streams), streams)


def maturing(streams: Streams) -> Chains:
    return BurnIn(FromGenerator(generator()), walk(streams), streams, size=30, burn_in_size=20, mature=3)


def noise() -> Start:
    return Uniform(SHAPE)


def data() -> Start:
    return FromData(digits())


def made() -> Start:
    return FromGenerator(generator())


ALL: dict[str, Callable[[Streams], Chains]] = {
    "noise": fresh(noise),
    "contrastive divergence": fresh(data),
    "cooperative": fresh(made),
    "multigrid": fresh(lambda: Coarse(Downsampled(FromData(digits()), size=2), SHAPE)),
    "persistent": persistent(noise),
    "persistent, noise rejuvenation": persistent(noise, rejuvenate=constant(0.3)),
    "persistent, data rejuvenation": persistent(data, rejuvenate=constant(0.3)),
    "persistent, augmented states": persistent(lambda: Augmented(SHAPE), rejuvenate=constant(0.9)),
    "persistent, generator (midrun)": persistent(made, rejuvenate=constant(0.1)),
    "hybrid": persistent(made, rejuvenate=constant(0.5), rounds=2),
    "maturing (longrun)": maturing,
}


@pytest.fixture(params=ALL)
def make(request: pytest.FixtureRequest) -> Callable[[Streams], Chains]:
    return ALL[request.param]


def test_negatives_are_finite_states_apart_from_the_bank(make: Callable[[Streams], Chains]) -> None:
    chains = make(Streams(0))
    negatives = chains.step(ENERGY, 10)
    assert negatives.x.shape == (10, *SHAPE)
    assert negatives.x.isfinite().all()
    assert negatives.info.gradient > 0
    assert not negatives.x.requires_grad
    if chains.bank is not None:
        kept = chains.bank.x.clone()
        negatives.x.fill_(7)
        assert torch.equal(chains.bank.x, kept)


def test_same_seed_same_bits_other_seed_others(make: Callable[[Streams], Chains]) -> None:
    one, two, other = (make(Streams(seed)) for seed in (0, 0, 1))
    for update in range(3):
        a, b, c = (chains.step(ENERGY, 10, update=update).x for chains in (one, two, other))
        assert torch.equal(a, b)
        assert not torch.equal(a, c)


def test_restored_chains_go_on_bit_for_bit(make: Callable[[Streams], Chains]) -> None:
    streams, restored_streams = Streams(0), Streams(99)
    chains, restored = make(streams), make(restored_streams)
    for update in range(3):
        chains.step(ENERGY, 10, update=update)
    restored.load_state_dict(copied(chains.state_dict()))
    restored_streams.load_state_dict(streams.state_dict())
    for update in range(3, 6):
        a, b = chains.step(ENERGY, 10, update=update), restored.step(ENERGY, 10, update=update)
        assert torch.equal(a.x, b.x)
        assert (a.z is None and b.z is None) or torch.equal(a.z, b.z)  # type: ignore[arg-type]


def copied(state: object) -> dict[str, object]:
    """As a checkpoint gives it back: nothing shared."""

    def copy(value: object) -> object:
        if isinstance(value, dict):
            return {key: copy(item) for key, item in value.items()}
        return value.clone() if isinstance(value, Tensor) else value

    return copy(state)  # type: ignore[return-value]


def test_the_global_generator_is_not_used(make: Callable[[Streams], Chains]) -> None:
    before = torch.get_rng_state()
    make(Streams(0)).step(ENERGY, 10)
    assert torch.equal(before, torch.get_rng_state())


def test_hybrid_with_p_1_is_cooperative() -> None:
    cooperative, hybrid = fresh(made)(Streams(0)), persistent(made, rejuvenate=constant(1.0))(Streams(0))
    for update in range(4):
        a, b = cooperative.step(ENERGY, 10, update=update), hybrid.step(ENERGY, 10, update=update)
        assert torch.equal(a.x, b.x)
        assert a.z is not None
        assert b.z is not None
        assert torch.equal(a.z, b.z)


class Counting:
    """A start that counts the states that it makes; every state is its own number."""

    def __init__(self) -> None:
        self.births = 0

    def __call__(self, n: int, *, rng: torch.Generator, old: Tensor | None = None) -> InitialStates:
        x = torch.arange(self.births, self.births + n, dtype=torch.float32)[:, None]
        self.births += n
        return InitialStates(x, x.clone())


def still(streams: Streams) -> Walk:
    """A walk that leaves states where they are."""
    return Walk(steps=constant(0), step_size=0.1)


def test_rejuvenation_is_binomial() -> None:
    p, n, steps = 0.3, 20, 400
    start = Counting()
    chains = Persistent(start, still(Streams(0)), Streams(0), size=50, rejuvenate=constant(p))
    for _ in range(steps):
        chains.step(ENERGY, n)
    births = start.births - 50
    assert births == pytest.approx(p * n * steps, abs=5 * math.sqrt(n * steps * p * (1 - p)))


def test_ages_are_geometric_and_cut_at_rounds() -> None:
    """Drawn states are rejuvenated with probability p, or if walked more than w times: the age after a walk is
    k in {1..w+1} with probability proportional to (1 - p)^(k - 1)."""
    p, w, n = 0.25, 2, 50
    chains = Persistent(Counting(), still(Streams(0)), Streams(0), size=50, rejuvenate=constant(p), rounds=w)
    counts = torch.zeros(w + 2)
    for step in range(600):
        chains.step(ENERGY, n)
        if step >= 100:
            counts += torch.bincount(chains.bank.age, minlength=w + 2)
    weights = torch.tensor([0.0] + [(1 - p) ** (k - 1) for k in range(1, w + 2)])
    torch.testing.assert_close(counts / counts.sum(), weights / weights.sum(), atol=0.02, rtol=0)


def test_pairs_stay_paired() -> None:
    chains = Persistent(Counting(), still(Streams(0)), Streams(0), size=40, rejuvenate=constant(0.4), rounds=3)
    for _ in range(50):
        negatives = chains.step(ENERGY, 10)
        assert negatives.z is not None
        assert torch.equal(negatives.x, negatives.z)  # the walk does not move the initial states
    assert chains.bank.z is not None
    assert torch.equal(chains.bank.x, chains.bank.z)


def test_rejuvenation_follows_its_schedule() -> None:
    start = Counting()
    schedule = Piecewise((Phase(0, 0.0), Phase(5, 1.0)))
    chains = Persistent(start, still(Streams(0)), Streams(0), size=20, rejuvenate=schedule)
    chains.step(ENERGY, 10, update=4)
    assert start.births == 20
    chains.step(ENERGY, 10, update=5)
    assert start.births == 30


def test_burned_in_states_arrive_steadily_and_were_walked_long_enough() -> None:
    n, mature, steps = 20, 10, 500
    start = Counting()
    chains = BurnIn(start, still(Streams(0)), Streams(0), size=60, burn_in_size=100, mature=mature)
    arrivals = []
    for _ in range(steps):
        chains.step(ENERGY, n)
        arrivals.append(chains.arrived)
        assert chains.burn_in.age.max() <= mature
    # n states age by one an update and leave at `mature`: n / mature arrive, from the beginning on.
    assert chains.arrived == pytest.approx(n * steps / mature, rel=0.1)
    assert arrivals[50] == pytest.approx(n * 51 / mature, rel=0.35)
    assert start.births == 160 + chains.arrived
    newcomers = chains.bank.x[:, 0] >= 60
    assert (chains.bank.age[newcomers] >= mature).all()


def test_burn_in_learns_from_the_update_bank_only() -> None:
    chains = BurnIn(Counting(), still(Streams(0)), Streams(0), size=50, burn_in_size=50, mature=1000)
    for _ in range(20):
        assert chains.step(ENERGY, 10).x.max() < 50  # the update bank was initialized first


def test_burn_in_may_walk_further() -> None:
    streams = Streams(0)
    chains = BurnIn(
        Uniform((1,)), walk(streams, steps=1), streams, size=9, burn_in_size=9, mature=500, burn_in_steps=200
    )
    chains.burn_in.x.fill_(100.0)
    chains.bank.x.fill_(100.0)
    chains.step(ENERGY, 9)
    assert chains.bank.x.min() > 90
    assert chains.burn_in.x.max() < 90


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda s: Persistent(Counting(), still(s), s, size=5).step(ENERGY, 6), "bank of 5"),
        (lambda s: Persistent(Counting(), still(s), s, size=0), "size"),
        (lambda s: Persistent(Uniform(SHAPE), still(s), s, size=10**14), "needs .* GB, the machine has"),
        (lambda s: Persistent(Counting(), still(s), s, rejuvenate=constant(1.5)), "rejuvenate"),
        (lambda s: Persistent(Counting(), still(s), s, rounds=-1), "rounds"),
        (lambda s: BurnIn(Counting(), still(s), s, mature=0), "mature"),
        (lambda s: BurnIn(Counting(), still(s), s, burn_in_size=0), "burn_in_size"),
    ],
)
def test_impossible_banks_are_refused(make: Callable[[Streams], object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make(Streams(0))
