"""Where a chain is born. A start makes n new states; chains decide when."""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ebmlife.data import Dataset
from ebmlife.errors import BadInput
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.loop import langevin
from ebmlife.sampling.rng import normal


class InitialStates(NamedTuple):
    x: Tensor
    z: Tensor | None = None  # the latents that made x, where a generator did


class Start(Protocol):
    def __call__(self, n: int, *, rng: torch.Generator, old: Tensor | None = None) -> InitialStates:
        """n new states; `old` are the ones that they replace, None where there are none yet."""
        ...


class Uniform:
    """Noise, uniform in [-1, 1]."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def __call__(self, n: int, *, rng: torch.Generator, old: Tensor | None = None) -> InitialStates:
        return InitialStates(2 * torch.rand(n, *self.shape, generator=rng, device=rng.device) - 1)


class FromData:
    """Data, drawn with replacement."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def __call__(self, n: int, *, rng: torch.Generator, old: Tensor | None = None) -> InitialStates:
        rows = torch.randint(len(self.dataset), (n,), generator=rng, device=rng.device)
        return InitialStates(self.dataset.take(rows.cpu()).to(rng.device))


class FromGenerator:
    """x = g(z), z ~ N(0, I), with the generator as it is at that moment, learning or frozen.

    A learning generator is in training mode and normalises by the statistics of those that are born together. (The
    authors' runs over the whole batch and keeps those to be reborn.)
    """

    def __init__(self, generator: nn.Module) -> None:
        self.generator = generator
        self.latent = int(generator.latent)  # type: ignore[arg-type]  # a plain attribute of the network

    @torch.no_grad()
    def __call__(self, n: int, *, rng: torch.Generator, old: Tensor | None = None) -> InitialStates:
        z = torch.randn(n, self.latent, generator=rng, device=rng.device)
        return InitialStates(self.generator(z), z)


class Augmented:
    """The old states themselves, zoomed, shifted, dimmed and blurred a little; a share is born anew as noise."""

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        anew: float = 0.05,
        zoom: float = 0.1,
        brightness: float = 0.1,
        flip: bool = False,
    ) -> None:
        if len(shape) != 3:
            raise BadInput(f"start 'augmented' needs images (C, H, W), got states of shape {shape}; use 'uniform'")
        self.noise = Uniform(shape)
        self.anew, self.zoom, self.brightness, self.flip = anew, zoom, brightness, flip

    def __call__(self, n: int, *, rng: torch.Generator, old: Tensor | None = None) -> InitialStates:
        fresh = self.noise(n, rng=rng).x
        if old is None:
            return InitialStates(fresh)
        anew = torch.rand(n, 1, 1, 1, generator=rng, device=rng.device) < self.anew
        return InitialStates(torch.where(anew, fresh, self._augment(old, rng)))

    def _augment(self, x: Tensor, rng: torch.Generator) -> Tensor:
        scale, dx, dy, light, mirror, blur = torch.rand(6, len(x), generator=rng, device=x.device)
        zoom = 1 - self.zoom * scale
        sign = torch.where(mirror < 0.5, -1.0, 1.0) if self.flip else torch.ones_like(mirror)
        slack, zero = 1 - zoom, torch.zeros_like(zoom)
        rows = [zoom * sign, zero, slack * (2 * dx - 1), zero, zoom, slack * (2 * dy - 1)]
        grid = F.affine_grid(torch.stack(rows, 1).view(-1, 2, 3), list(x.shape), align_corners=False)
        x = F.grid_sample(x, grid, padding_mode="reflection", align_corners=False)
        x = x + self.brightness * (2 * light - 1).view(-1, 1, 1, 1)
        smooth = F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
        return torch.lerp(x, smooth, (blur / 2).view(-1, 1, 1, 1))


class Downsampled:
    """Another start's images, averaged down to size x size: the coarsest grid of the multigrid method."""

    def __init__(self, start: Start, *, size: int) -> None:
        self.start, self.size = start, size

    def __call__(self, n: int, *, rng: torch.Generator, old: Tensor | None = None) -> InitialStates:
        return InitialStates(F.interpolate(self.start(n, rng=rng).x, size=self.size, mode="area"))


class AfterLangevin:
    """Another start's states after a walk on an energy, such as that of a model of a coarser grid."""

    def __init__(self, start: Start, energy: Energy, *, steps: int, step_size: float) -> None:
        self.start, self.energy, self.steps, self.step_size = start, energy, steps, step_size

    def __call__(self, n: int, *, rng: torch.Generator, old: Tensor | None = None) -> InitialStates:
        born = self.start(n, rng=rng)
        x, _ = langevin(self.energy, born.x, steps=self.steps, step_size=self.step_size, noise=normal(rng))
        return InitialStates(x, born.z)


class Coarse:
    """Another start's images of a lower resolution, enlarged (multigrid)."""

    def __init__(self, below: Start, shape: tuple[int, ...]) -> None:
        if len(shape) != 3:
            raise BadInput(f"start 'coarse' needs images (C, H, W), got states of shape {shape}; use 'uniform'")
        self.below, self.size = below, shape[-2:]

    def __call__(self, n: int, *, rng: torch.Generator, old: Tensor | None = None) -> InitialStates:
        low = self.below(n, rng=rng).x
        return InitialStates(F.interpolate(low, size=self.size, mode="bilinear", align_corners=False))
