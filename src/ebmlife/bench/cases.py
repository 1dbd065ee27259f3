"""The cases of the benchmark, and the contestants: our Langevin sampling, the plain PyTorch loop, and a peer."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ebmlife.data import Batches, InMemory
from ebmlife.nets import SNGANEnergy
from ebmlife.nets.activations import ACTIVATIONS
from ebmlife.nets.sngan import EnergyBlock
from ebmlife.sampling.energy import Energy, energy_and_gradient, frozen, tempered
from ebmlife.sampling.fast import Precision, has_bf16, prepare
from ebmlife.sampling.loop import Walk, langevin
from ebmlife.sampling.native.library import library
from ebmlife.sampling.rng import Noise, Streams, normal
from ebmlife.training.chains import Persistent
from ebmlife.training.ebm import TrainableEnergy, Trainer
from ebmlife.training.starts import Uniform

Contestant = Callable[[int], Any]  # does this many Langevin steps, or training updates
STEP_SIZE, TEMPERATURE = 5e-3, 1e-2
AUTO, OURS, HALF, FOLDED = "ours, auto", "ours, f32", "ours, bf16", "ours, no compiler"
BOTH = "ours, energy too"
PLAIN, COMPILED, PEER = "plain PyTorch", "plain, torch.compile", "torchebm"


@dataclass(frozen=True)
class Case:
    """A network and a batch of images."""

    name: str
    size: int
    width: int
    channels: int = 3
    batch: int = 64
    activation: str = "relu"

    def net(self) -> SNGANEnergy:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return SNGANEnergy(self.size, self.width, self.channels, self.activation)

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
    Case("32x32, width 64, 1 image", 32, 64, batch=1),
    Case("32x32, width 64, 4 images", 32, 64, batch=4),
    Case("128x128, 4 images", 128, 256, batch=4),
)
SMOOTH = tuple(Case(f"32x32, width 64, {name}", 32, 64, activation=name) for name in ACTIVATIONS if name != "relu")


def plain_energy(net: SNGANEnergy) -> Energy:
    """Returns the energy as SNGAN's layer table gives it: convolutions first, then pooling."""

    activation = ACTIVATIONS[getattr(net, "activation", "relu")]

    def energy(x: Tensor) -> Tensor:
        for block in net.blocks:
            assert isinstance(block, EnergyBlock)
            h = block.conv_2(activation(block.conv_1(x if block.stem else activation(x))))
            x = F.avg_pool2d(h + block.sc(x), 2) if block.down else h + block.sc(x)
        value: Tensor = net.linear(activation(x).mean((2, 3)))
        return value.squeeze(1)

    return energy


def plain_walk(energy: Energy, x: Tensor, steps: int, noise: Noise = torch.randn_like) -> Tensor:
    """Runs Langevin sampling as a plain PyTorch loop."""
    x = x.detach().clone().requires_grad_(True)
    for _ in range(steps):
        grad = torch.autograd.grad(energy(x).sum(), [x])[0]
        x.data += -(STEP_SIZE**2) / 2 * grad + STEP_SIZE * noise(x)
    return x.detach()


def contestants(case: Case) -> dict[str, Contestant]:
    """Returns the contestants that run Langevin steps, by name."""
    net, x = case.net(), case.start()
    printed = plain_energy(net)
    energies = {FOLDED: tempered(net, TEMPERATURE)}
    if library() is not None:
        energies[OURS] = prepare(net, temperature=TEMPERATURE, precision="f32")
    if has_bf16(x.device):
        energies[HALF] = prepare(net, temperature=TEMPERATURE, precision="bf16")
        energies[AUTO] = prepare(net, temperature=TEMPERATURE, precision="auto")
    walks: dict[str, Contestant] = {PLAIN: lambda n: plain_walk(lambda x: printed(x) / TEMPERATURE, x, n)}
    for name, energy in energies.items():
        walks[name] = partial(walk_of, energy, x)
    if OURS in energies:
        walks[BOTH] = partial(_walk_with_energies, energies[OURS], x)
    if case.size <= 32 and case.activation == "relu":  # it takes a minute to compile a case
        compiled = torch.compile(printed)
        walks[COMPILED] = lambda n: plain_walk(lambda x: compiled(x) / TEMPERATURE, x, n)
    peer = _torchebm(printed, x)
    return walks | ({PEER: peer} if peer else {})


def _walk_with_energies(energy: Energy, x: Tensor, steps: int) -> Tensor:
    """Runs Langevin steps that know the energy of every state, as a Metropolis test needs it."""
    x = x.clone()
    with frozen(energy):
        for _ in range(steps):
            _, grad = energy_and_gradient(energy, x)
            x = x - STEP_SIZE**2 / 2 * grad + STEP_SIZE * torch.randn_like(x)
    return x


def walk_of(energy: Energy, x: Tensor, steps: int) -> Tensor:
    return langevin(energy, x, steps=steps, step_size=STEP_SIZE)[0]


def _torchebm(energy: Energy, x: Tensor) -> Contestant | None:
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


def update_contestants(case: Case, *, steps: int = 30, bank: int = 1000) -> dict[str, Contestant]:
    """Returns the contestants that run training updates with persistent chains of `steps` steps, by name."""

    def trainer(fast: bool, precision: Precision = "f32") -> Trainer:
        net, streams = case.net(), Streams(0)
        data = InMemory(torch.randint(0, 256, (1000, case.channels, case.size, case.size), dtype=torch.uint8))
        energy = TrainableEnergy(net, precision=precision)
        if not fast:
            energy.learned = energy.full = plain_energy(net)
        walk = Walk(steps=steps, step_size=STEP_SIZE, noise=normal(streams["langevin"]))
        chains = Persistent(Uniform(data.shape), walk, streams, size=bank, rejuvenate=0.05)
        return Trainer(Batches(data, size=case.batch, seed=0), chains, energy)

    def train(trainer: Trainer, updates: int) -> None:
        trainer.fit(trainer.update + updates)

    found: dict[str, Contestant] = {PLAIN: partial(train, trainer(False)), OURS: partial(train, trainer(True))}
    return found | ({AUTO: partial(train, trainer(True, "auto"))} if has_bf16(torch.device("cpu")) else {})
