"""Measures the speed of all contestants of a case in turns, as ratios to the plain loop within each round."""

import statistics
import time
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch.utils.flop_counter import FlopCounterMode

from ebmlife.bench.cases import OURS, PLAIN, TEMPERATURE, Case, Contestant, update_contestants, walk_of
from ebmlife.sampling.fast import has_bf16, prepare


@dataclass(frozen=True)
class Measured:
    contestant: str
    ratio: float  # to the plain loop, median over rounds
    low: float  # the smallest and the largest ratio of all rounds
    high: float
    share_of_limit: float | None  # share of the machine's f32 matrix product, by operations of the folded network
    share_of_bf16: float | None  # the same for bf16, which is emulated where the hardware lacks it


@dataclass(frozen=True)
class Result:
    case: Case
    measured: list[Measured]
    noise: float  # spread of the plain loop's own speed over rounds: (highest - lowest) / median


def flops(case: Case) -> int:
    """Returns the operations of one gradient of one image, for the folded network.

    The backward pass to x costs as much as the forward pass.
    """
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        case.net()(case.start()[:1])
    return 2 * int(counter.get_total_flops())


def matrix_rate(dtype: torch.dtype = torch.float32) -> float:
    """Returns the operations per second of a large matrix product, or of a smaller one where it is emulated."""
    size = 1536 if dtype is torch.float32 or has_bf16(torch.device("cpu")) else 512
    a, b = torch.randn(2, size, size).to(dtype)
    return 2 * size**3 / min(_seconds(lambda _: a @ b, 1) for _ in range(4))


def measure(
    case: Case,
    walks: dict[str, Contestant],
    *,
    rounds: int,
    seconds: float,
    fewest: int = 1,
    operations: int | None = None,
) -> Result:
    """Measures all contestants in turns.

    Args:
        case: The case.
        walks: The contestants by name.
        rounds: Number of rounds.
        seconds: About how long each contestant runs in a round.
        fewest: The smallest number of steps of a contestant in a round.
        operations: Operations of one step of one image, if they are known.

    Returns:
        The ratios to the plain loop.
    """
    steps = {name: _steps_for(walk, seconds, fewest) for name, walk in walks.items()}
    rates: dict[str, list[float]] = {name: [] for name in walks}
    limits: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    for _ in range(rounds):
        for dtype, found in limits.items():
            found.append(matrix_rate(dtype))
        for name, walk in walks.items():
            rates[name].append(case.batch * steps[name] / _seconds(walk, steps[name]))
    measured = []
    for name, values in rates.items():
        ratios = [rate / plain for rate, plain in zip(values, rates[PLAIN], strict=True)]
        shares = [
            operations and statistics.median(operations * r / limit for r, limit in zip(values, found, strict=True))
            for found in limits.values()
        ]
        measured.append(Measured(name, statistics.median(ratios), min(ratios), max(ratios), *shares))
    plain = rates[PLAIN]
    return Result(case, measured, noise=(max(plain) - min(plain)) / statistics.median(plain))


def _steps_for(walk: Contestant, seconds: float, fewest: int) -> int:
    walk(1)
    return max(fewest, round(seconds / _seconds(walk, 1)))


def _seconds(walk: Contestant, steps: int) -> float:
    begin = time.perf_counter()
    walk(steps)
    return time.perf_counter() - begin


Growth = dict[str, dict[int, float]]  # relative cost by value, for each quantity that grows


def growth(case: Case) -> Growth:
    """Returns the cost relative to the smallest value as steps, batch, width, size and bank grow.

    The cost is expected to be linear in steps and batch and quadratic in width and size. That of an update should
    hardly depend on the bank.
    """

    def walk(*, steps: int = 20, batch: int = case.batch, width: int = case.width, size: int = case.size) -> float:
        changed = replace(case, batch=batch, width=width, size=size)
        energy, x = prepare(changed.net(), temperature=TEMPERATURE), changed.start()
        return _best(partial(walk_of, energy, x), steps)

    def update(bank: int) -> float:
        train = update_contestants(case, bank=bank)[OURS]
        return _best(train, 1)

    walk()
    costs = {
        "steps": {n: walk(steps=n) for n in (10, 20, 40, 80)},
        "batch": {n: walk(batch=n) for n in (64, 128, 256, 512)},
        "width": {n: walk(width=n) for n in (32, 64, 128)},
        "size": {n: walk(size=n) for n in (8, 16, 32)},
        "bank": {n: update(n) for n in (1000, 10_000, 100_000)},
    }
    return {name: {n: cost / next(iter(of.values())) for n, cost in of.items()} for name, of in costs.items()}


def _best(walk: Contestant, steps: int) -> float:
    walk(1)
    return min(_seconds(walk, steps) for _ in range(5))
