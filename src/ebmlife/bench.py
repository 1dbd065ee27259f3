"""How fast Langevin is on this machine, beside the plain loop, a peer, and the machine's own limit.

All contestants of a case run in one process, in turns, for several rounds; ratios are medians over the rounds of
ratios within a round, so that a machine that slows down slows all alike. No time is worth quoting, ratios are.
"""

import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from ebmlife import pictures
from ebmlife.chains import Persistent
from ebmlife.data import Batches, InMemory
from ebmlife.energy import Energy, tempered
from ebmlife.files import whole
from ebmlife.langevin import Walk, langevin
from ebmlife.learner import Learner
from ebmlife.native.library import library
from ebmlife.nets import SNGANEnergy
from ebmlife.nets.sngan import EnergyBlock
from ebmlife.prepare import has_bf16, prepare
from ebmlife.randomness import Noise, Streams, normal
from ebmlife.starts import Uniform
from ebmlife.trainer import Trainer

STEP_SIZE, TEMPERATURE = 5e-3, 1e-2
OURS, HALF, FOLDED, PLAIN, PEER = "ours, f32", "ours, bf16", "ours, no compiler", "plain PyTorch", "torchebm"


@dataclass(frozen=True)
class Case:
    name: str
    size: int
    width: int
    channels: int = 3
    batch: int = 64

    def net(self) -> SNGANEnergy:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return SNGANEnergy(self.size, self.width, self.channels)

    def start(self) -> Tensor:
        return 2 * torch.rand(self.batch, self.channels, self.size, self.size) - 1


CASES = (
    Case("digits 8x8, width 32", 8, 32, channels=1),
    Case("16x16, width 32", 16, 32),
    Case("32x32, width 32", 32, 32),
    Case("32x32, width 64", 32, 64),
    Case("32x32, width 128", 32, 128),
    Case("32x32, width 256", 32, 256),
    Case("64x64, width 16 to 256", 64, 256, batch=16),
    Case("128x128, width 16 to 256", 128, 256, batch=16),
)


@dataclass(frozen=True)
class Measured:
    contestant: str
    ratio: float  # to the plain loop, median over rounds
    low: float  # the smallest and the largest of the rounds
    high: float
    share_of_limit: float  # of the machine's f32 matrix product, counting the operations of the folded network
    share_of_bf16: float  # and of its bf16 one, emulated where the hardware has none


@dataclass(frozen=True)
class Result:
    case: Case
    measured: list[Measured]
    noise: float  # spread of the plain loop's own speed over rounds: (highest - lowest) / median


def plain_energy(net: SNGANEnergy) -> Energy:
    """The energy as SNGAN's layer table prints it: convolutions first, then pools."""

    def energy(x: Tensor) -> Tensor:
        for block in net.blocks:
            assert isinstance(block, EnergyBlock)
            h = block.conv_2(F.relu(block.conv_1(x if block.stem else F.relu(x))))
            x = F.avg_pool2d(h + block.sc(x), 2) if block.down else h + block.sc(x)
        value: Tensor = net.linear(F.relu(x).mean((2, 3)))
        return value.squeeze(1)

    return energy


def plain_walk(energy: Energy, x: Tensor, steps: int, noise: Noise = torch.randn_like) -> Tensor:
    """The loop as everybody writes it."""
    x = x.detach().clone().requires_grad_(True)
    for _ in range(steps):
        slope = torch.autograd.grad(energy(x).sum(), [x])[0]
        x.data += -(STEP_SIZE**2) / 2 * slope + STEP_SIZE * noise(x)
    return x.detach()


def contestants(case: Case) -> dict[str, Callable[[int], Any]]:
    """Walks of so many steps, by name."""
    net, x = case.net(), case.start()
    printed = plain_energy(net)
    energies = {FOLDED: tempered(net, TEMPERATURE)}
    if library() is not None:
        energies[OURS] = prepare(net, temperature=TEMPERATURE, precision="f32")
    if has_bf16(x.device):
        energies[HALF] = prepare(net, temperature=TEMPERATURE, precision="bf16")
    walks: dict[str, Callable[[int], Any]] = {PLAIN: lambda n: plain_walk(lambda x: printed(x) / TEMPERATURE, x, n)}
    for name, energy in energies.items():
        walks[name] = partial(_walk, energy, x)
    peer = _torchebm(printed, x)
    return walks | ({PEER: peer} if peer else {})


def _walk(energy: Energy, x: Tensor, steps: int) -> Tensor:
    return langevin(energy, x, steps=steps, step_size=STEP_SIZE)[0]


def _torchebm(energy: Energy, x: Tensor) -> Callable[[int], Any] | None:
    try:
        from torchebm.core import BaseModel
        from torchebm.samplers import LangevinDynamics
    except ImportError:
        return None

    class Peer(BaseModel):  # type: ignore[misc, unused-ignore]  # Any where torchebm is not installed
        def forward(self, x: Tensor) -> Tensor:
            return energy(x) / TEMPERATURE

    sampler = LangevinDynamics(Peer(), step_size=STEP_SIZE**2 / 2, noise_scale=1.0, device="cpu")
    return lambda n: sampler.sample(x=x.clone(), n_steps=n)


def update_contestants(case: Case, *, steps: int = 30, bank: int = 1000) -> dict[str, Callable[[int], Any]]:
    """Whole training updates with persistent chains of so many steps: so many of them, by name."""

    def trainer(fast: bool) -> Trainer:
        net, streams = case.net(), Streams(0)
        data = InMemory(torch.randint(0, 256, (1000, case.channels, case.size, case.size), dtype=torch.uint8))
        learned: Energy = net if fast else plain_energy(net)
        ebm = Learner(net, torch.optim.Adam(net.parameters()), learning_rate=1e-4)
        walk = Walk(steps=steps, step_size=STEP_SIZE, noise=normal(streams["langevin"]))
        chains = Persistent(Uniform(data.shape), walk, streams, size=bank, rejuvenate=0.05)
        energy = prepare(net) if fast else learned
        return Trainer(Batches(data, size=case.batch, seed=0), chains, learned=learned, energy=energy, ebm=ebm)

    def train(trainer: Trainer, updates: int) -> None:
        trainer.fit(trainer.update + updates)

    return {PLAIN: partial(train, trainer(False)), OURS: partial(train, trainer(True))}


def flops(case: Case) -> int:
    """Operations of one gradient of one image, as the folded network has them: a backward pass to x costs as much as
    the forward pass."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        case.net()(case.start()[:1])
    return 2 * int(counter.get_total_flops())


def matrix_rate(dtype: torch.dtype = torch.float32) -> float:
    """Operations a second of a large matrix product; a smaller one where it would be emulated, and slow."""
    size = 1536 if dtype is torch.float32 or has_bf16(torch.device("cpu")) else 512
    a, b = torch.randn(2, size, size).to(dtype)
    return 2 * size**3 / min(_seconds(lambda _: a @ b, 1) for _ in range(4))


def measure(
    case: Case, walks: dict[str, Callable[[int], Any]], *, rounds: int, seconds: float, fewest: int = 1
) -> Result:
    """All contestants in turns, each for about so many seconds, but at least `fewest` steps."""
    operations = flops(case)
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
            statistics.median(rate * operations / limit for rate, limit in zip(values, found, strict=True))
            for found in limits.values()
        ]
        measured.append(Measured(name, statistics.median(ratios), min(ratios), max(ratios), *shares))
    plain = rates[PLAIN]
    return Result(case, measured, noise=(max(plain) - min(plain)) / statistics.median(plain))


def _steps_for(walk: Callable[[int], Any], seconds: float, fewest: int) -> int:
    walk(1)
    return max(fewest, round(seconds / _seconds(walk, 1)))


def _seconds(walk: Callable[[int], Any], steps: int) -> float:
    begin = time.perf_counter()
    walk(steps)
    return time.perf_counter() - begin


def growth(case: Case) -> dict[str, dict[int, float]]:
    """Cost relative to the smallest, as steps, batch, width, size and bank grow; 1, 2, 4, 8 is linear in steps.

    Operations grow with the square of the width and of the size; the cost of an update hardly with the bank.
    """

    def walk(*, steps: int = 20, batch: int = case.batch, width: int = case.width, size: int = case.size) -> float:
        changed = replace(case, batch=batch, width=width, size=size)
        energy, x = prepare(changed.net(), temperature=TEMPERATURE), changed.start()
        return _best(partial(_walk, energy, x), steps)

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


def _best(walk: Callable[[int], Any], steps: int) -> float:
    walk(1)
    return min(_seconds(walk, steps) for _ in range(5))


def bench(folder: Path, console: Console, *, rounds: int = 5, seconds: float = 0.5) -> None:
    """Measures all cases and writes bench.json and bench.png into the folder."""
    table = Table("case", "contestant", "x plain", "rounds", "of f32", "of bf16", "noise")
    results = []
    updates = [replace(case, name=f"whole update, {case.name}") for case in CASES if case.width <= 64]
    for case in (*CASES, *updates):
        # Walks in use are tens of steps long: what is done once a walk must not weigh as if it were done each step.
        walks, fewest = (update_contestants(case), 1) if case in updates else (contestants(case), 5)
        result = measure(case, walks, rounds=rounds, seconds=seconds, fewest=fewest)
        results.append(result)
        for entry in sorted(result.measured, key=lambda entry: -entry.ratio):
            spread = f"{entry.low:.2f} to {entry.high:.2f}"
            shares = [f"{share:.0%}" for share in (entry.share_of_limit, entry.share_of_bf16)]
            row = [entry.contestant, f"{entry.ratio:.2f}", spread, *(["", ""] if case in updates else shares)]
            table.add_row(case.name, *row, f"{result.noise:.0%}")
        table.add_section()
        console.print(f"{case.name}: done", highlight=False)
    grown = growth(CASES[0])
    console.print(table)
    for name, costs in grown.items():
        line = ", ".join(f"{n}: {value:.2f}" for n, value in costs.items())
        console.print(f"cost over {name}, relative: {line}", highlight=False)
    _write(folder, results, grown)
    console.print(f"written: {folder / 'bench.json'}, {folder / 'bench.png'}", highlight=False, soft_wrap=True)


def _write(folder: Path, results: list[Result], grown: dict[str, dict[int, float]]) -> None:
    machine = {
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "bf16": has_bf16(torch.device("cpu")),
        "f32 matrix product, GFLOP/s": round(matrix_rate() / 1e9),
        "bf16 matrix product, GFLOP/s": round(matrix_rate(torch.bfloat16) / 1e9),
    }
    record = {"machine": machine, "results": [asdict(result) for result in results], "growth": grown}
    with whole(folder / "bench.json") as unfinished:
        unfinished.write_text(json.dumps(record, indent=2))
    pictures.save(
        folder / "bench.png",
        pictures.bars(
            {r.case.name: {m.contestant: m.ratio for m in r.measured} for r in results},
            title="image-steps a second, relative to the plain PyTorch loop",
        ),
    )
