"""Recovery likelihood (Gao et al. 2021): at every level of a diffusion, an EBM of the data given a noisier version.

Level t has x_t, data diffused a little, and the noisy x_{t+1} = a x_t + sigma e. What is learned is an energy U_t of
y = a x_t; given the noisy image, y has the energy U_t(y) + |x_{t+1} - y|^2 / (2 sigma^2), on which short chains are
enough. The highest level has no noisier image: there a = 1 and the second term is missing.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from ebmlife.data import Batches
from ebmlife.errors import BadInput
from ebmlife.sampling.loop import Info, langevin
from ebmlife.sampling.rng import Noise, normal
from ebmlife.training.base import Loop, Report
from ebmlife.training.learner import Learner
from ebmlife.training.starts import InitialStates


class Diffusion:
    """The noise of every level, as in the authors' code: 1000 small steps of growing variance, combined into a few.

    Args:
        levels: Number of levels.
        relative_step: Langevin step size in units of a level's noise.
        device: Where the numbers are kept.
    """

    def __init__(self, levels: int, *, relative_step: float, device: torch.device | str = "cpu") -> None:
        roots = np.sqrt(1 - np.linspace(1e-4, 0.02, 1000))
        ends = [*(level * (1000 // (2 * (levels - 1))) + 1 for level in range(levels)), 1000]
        a = np.array([np.prod(roots[i:j]) for i, j in pairwise([0, *ends])])
        total = np.cumprod(a)
        table = {
            "kept": total[:-1],  # x_t = kept x + spread e
            "spread": np.sqrt(1 - total[:-1] ** 2),
            "a": np.append(a[1:-1], 1.0),  # y = a x_t
            "step_a": a[1:],  # x_{t+1} = step_a x_t + sigma e
            "sigma": np.sqrt(1 - a[1:] ** 2),
            "given": np.append(np.ones(levels - 1), 0.0),  # 1 if there is a noisier image, else 0
        }
        # The step of a chain of level t: relative_step * sigma * sqrt(spread_t / spread_0), c_t of the authors' code.
        table["step"] = relative_step * table["sigma"] * np.sqrt(table["spread"] / table["spread"][0])
        self.levels = levels
        self._table = {name: torch.tensor(values, dtype=torch.float32, device=device) for name, values in table.items()}

    def __call__(self, name: str, level: Tensor, like: Tensor) -> Tensor:
        """Returns a number for each image of a batch, in a shape that multiplies it."""
        return self._table[name][level].view(-1, *[1] * (like.ndim - 1))


class LevelNet(nn.Module):
    """f(y, level): a network whose level is given by constant channels, one of which is 1."""

    def __init__(self, net: nn.Module, levels: int) -> None:
        super().__init__()
        self.net, self.levels = net, levels

    def forward(self, y: Tensor, level: Tensor) -> Tensor:
        marks = torch.nn.functional.one_hot(level, self.levels).to(y.dtype)
        planes = marks.view(*marks.shape, 1, 1).expand(-1, -1, *y.shape[2:])
        energy: Tensor = self.net(torch.cat([y, planes], 1))
        return energy


class Conditional(nn.Module):
    """E(u) = f(s u) / s^2 + |noisy - s u|^2 / (2 sigma^2), for states in units of their level's step s.

    In these units chains of all levels walk together with step size 1. As in the authors' code, f is divided by s^2,
    so that its part of a step has the size of f's own gradient.
    """

    def __init__(self, net: nn.Module, diffusion: Diffusion, level: Tensor, noisy: Tensor) -> None:
        super().__init__()
        self.net, self.level, self.noisy = net, level, noisy
        self.step, self.sigma = diffusion("step", level, noisy), diffusion("sigma", level, noisy)
        self.given = diffusion("given", level, noisy)

    def forward(self, u: Tensor) -> Tensor:
        y = self.step * u
        near = (self.given * ((self.noisy - y) / self.sigma).square()).flatten(1).sum(1) / 2
        return torch.as_tensor(self.net(y, self.level)) / self.step.flatten().square() + near


def recovered(
    net: nn.Module, diffusion: Diffusion, level: Tensor, noisy: Tensor, *, steps: int, noise: Noise
) -> tuple[Tensor, Info]:
    """Returns y after a chain that starts from the noisy image."""
    energy = Conditional(net, diffusion, level, noisy)
    u, info = langevin(energy, noisy / energy.step, steps=steps, step_size=1.0, noise=noise)
    return energy.step * u, info


@dataclass(frozen=True)
class RecoveryMetrics(Report):
    """The metrics of one update."""

    headline: ClassVar[str] = "energy_difference"

    energy_difference: float  # mean f(y+) - mean f(y-), weighted over levels as the loss is
    gradient: float  # mean |grad E| along the walk, in units of the level's step


class RecoveryTrainer(Loop[RecoveryMetrics]):
    """Trains the energies of all levels together.

    Args:
        batches: The data.
        energy: The learner of a `LevelNet`.
        diffusion: The noise of every level.
        steps: Langevin steps of a chain, K.
        rng: Generator of levels and noise.
        device: Where the network is.
    """

    stateful = ("batches", "energy")

    def __init__(
        self,
        batches: Batches,
        *,
        energy: Learner,
        diffusion: Diffusion,
        steps: int = 30,
        rng: torch.Generator,
        device: torch.device | str = "cpu",
    ) -> None:
        self.batches, self.energy, self.diffusion, self.steps = batches, energy, diffusion, steps
        self.rng, self.noise, self.device = rng, normal(rng), device

    def step(self) -> RecoveryMetrics:
        """Makes an update that lowers the mean of w_t [f(y+, t) - f(y-, t)], w_t = sigma_0 / sigma_t, random t."""
        data = self.batches.next().to(self.device)
        level = torch.randint(self.diffusion.levels, (len(data),), generator=self.rng, device=self.rng.device)
        at = self.diffusion
        x = at("kept", level, data) * data + at("spread", level, data) * self.noise(data)
        noisy = at("step_a", level, data) * x + at("sigma", level, data) * self.noise(data)
        y, info = recovered(self.energy.net, at, level, noisy, steps=self.steps, noise=self.noise)
        both = self.energy.net(torch.cat([at("a", level, data) * x, y]), torch.cat([level, level]))
        of_data, of_samples = both.chunk(2)
        weight = at("sigma", torch.zeros_like(level), level) / at("sigma", level, level)
        loss = (weight * (of_data - of_samples)).mean()
        self.energy.descend(loss, update=self.update)
        self.update += 1
        return RecoveryMetrics(
            update=self.update,
            energy_difference=loss.item(),
            gradient=info.gradient.item(),
            data_seconds=self.batches.waited(),
        )


class Progressive:
    """Samples of the model: noise, recovered level by level down to the lowest."""

    def __init__(self, net: nn.Module, diffusion: Diffusion, shape: tuple[int, ...], *, steps: int = 30) -> None:
        self.net, self.diffusion, self.shape, self.steps = net, diffusion, shape, steps

    def __call__(self, n: int, *, rng: torch.Generator, old: Tensor | None = None) -> InitialStates:
        x = torch.randn(n, *self.shape, generator=rng, device=rng.device)
        for t in reversed(range(self.diffusion.levels)):
            level = torch.full((n,), t, device=rng.device)
            y, _ = recovered(self.net, self.diffusion, level, x, steps=self.steps, noise=normal(rng))
            x = y / self.diffusion("a", level, y)
        return InitialStates(x)


class LowestEnergy(nn.Module):
    """The energy of the lowest level, E(x) = f(a x, 0) / s_0^2, not conditioned on a noisy image.

    `given(noisy)` is the conditional energy of states given their noisy images.
    """

    def __init__(self, net: nn.Module, diffusion: Diffusion) -> None:
        super().__init__()
        self.net, self.diffusion = net, diffusion

    def forward(self, x: Tensor) -> Tensor:
        level = torch.zeros(len(x), dtype=torch.int64, device=x.device)
        f = torch.as_tensor(self.net(self.diffusion("a", level, x) * x, level))
        return f / self.diffusion("step", level, f).square()

    def given(self, noisy: Tensor) -> "Held":
        return Held(self, noisy)

    def noisier(self, x: Tensor, *, noise: Noise) -> Tensor:
        """Returns the noisy images that condition the lowest level: data x, diffused to that level and the next."""
        level, at = torch.zeros(len(x), dtype=torch.int64, device=x.device), self.diffusion
        diffused = at("kept", level, x) * x + at("spread", level, x) * noise(x)
        return at("step_a", level, x) * diffused + at("sigma", level, x) * noise(x)


class Held(nn.Module):
    """E(x) = f(a x, 0) / s_0^2 + |noisy - a x|^2 / (2 sigma_0^2): each state has its own noisy image."""

    noisy: Tensor

    def __init__(self, lowest: LowestEnergy, noisy: Tensor) -> None:
        super().__init__()
        self.lowest = lowest
        self.register_buffer("noisy", noisy)

    def forward(self, x: Tensor) -> Tensor:
        if len(x) != len(self.noisy):
            raise BadInput(
                f"a conditional energy of {len(self.noisy)} images needs as many states in one batch, got {len(x)}"
            )
        level, at = torch.zeros(len(x), dtype=torch.int64, device=x.device), self.lowest.diffusion
        off = (self.noisy - at("a", level, x) * x) / at("sigma", level, x)
        return torch.as_tensor(self.lowest(x)) + off.square().flatten(1).sum(1) / 2
