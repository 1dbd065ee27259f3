"""Initial states of chains. A start makes n states when the chains request them."""

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
    """States (n, ...) at the start of their chains."""

    x: Tensor
    z: Tensor | None = None  # the latents (n, latent), if a generator made x


class Start(Protocol):
    """Makes the initial states of chains."""

    def __call__(self, n: int, *, rng: torch.Generator, old: Tensor | None = None) -> InitialStates:
        """Returns n new states.

        Args:
            n: Number of states.
            rng: Generator of all randomness.
            old: The states (n, ...) that the new ones replace. None: there are no earlier ones.
        """
        ...


class Uniform:
    """Noise, uniform in [-1, 1].

    Args:
        shape: Shape of one state.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def __call__(self, n: int, *, rng: torch.Generator, old: Tensor | None = None) -> InitialStates:
        return InitialStates(2 * torch.rand(n, *self.shape, generator=rng, device=rng.device) - 1)


class FromData:
    """Items of a data set, drawn with replacement.

    Args:
        dataset: The data set.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def __call__(self, n: int, *, rng: torch.Generator, old: Tensor | None = None) -> InitialStates:
        rows = torch.randint(len(self.dataset), (n,), generator=rng, device=rng.device)
        return InitialStates(self.dataset.take(rows.cpu()).to(rng.device))


class FromGenerator:
    """x = g(z) with z ~ N(0, I), from the current state of a generator, which learns or is frozen.

    A learning generator is in training mode and normalizes by the statistics of the states that are made together.
    (The authors' code runs it over the whole batch and uses the states that are to be rejuvenated.)

    Args:
        generator: A network from latents (n, latent) to states, with its number of latents as `latent`.
    """

    def __init__(self, generator: nn.Module) -> None:
        self.generator = generator
        self.latent = int(generator.latent)  # type: ignore[arg-type]  # a plain attribute of the network

    @torch.no_grad()
    def __call__(self, n: int, *, rng: torch.Generator, old: Tensor | None = None) -> InitialStates:
        z = torch.randn(n, self.latent, generator=rng, device=rng.device)
        return InitialStates(self.generator(z), z)


class Augmented:
    """The old states, slightly zoomed, shifted, dimmed and blurred; a share of them is replaced by uniform noise.

    Args:
        shape: Shape (C, H, W) of one image.
        anew: Probability that a state is replaced by noise.
        zoom: Largest share by which an image is enlarged.
        brightness: Largest change of all pixels.
        flip: Whether images are mirrored at random.
    """

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
    """The images of another start, averaged down to size x size: the coarsest grid of the multigrid method.

    Args:
        start: Makes the images.
        size: Height and width after averaging.
    """

    def __init__(self, start: Start, *, size: int) -> None:
        self.start, self.size = start, size

    def __call__(self, n: int, *, rng: torch.Generator, old: Tensor | None = None) -> InitialStates:
        return InitialStates(F.interpolate(self.start(n, rng=rng).x, size=self.size, mode="area"))


class AfterLangevin:
    """The states of another start after a Langevin walk, for example on the energy of a coarser grid's model.

    Args:
        start: Makes the states that the walk begins with.
        energy: The energy of the walk.
        steps: Number of Langevin steps.
        step_size: Langevin step size.
    """

    def __init__(self, start: Start, energy: Energy, *, steps: int, step_size: float) -> None:
        self.start, self.energy, self.steps, self.step_size = start, energy, steps, step_size

    def __call__(self, n: int, *, rng: torch.Generator, old: Tensor | None = None) -> InitialStates:
        initial = self.start(n, rng=rng)
        x, _ = langevin(self.energy, initial.x, steps=self.steps, step_size=self.step_size, noise=normal(rng))
        return InitialStates(x, initial.z)


class Coarse:
    """The low-resolution images of another start, enlarged (multigrid).

    Args:
        below: Makes images of a lower resolution.
        shape: Shape (C, H, W) after enlarging.
    """

    def __init__(self, below: Start, shape: tuple[int, ...]) -> None:
        if len(shape) != 3:
            raise BadInput(f"start 'coarse' needs images (C, H, W), got states of shape {shape}; use 'uniform'")
        self.below, self.size = below, shape[-2:]

    def __call__(self, n: int, *, rng: torch.Generator, old: Tensor | None = None) -> InitialStates:
        low = self.below(n, rng=rng).x
        return InitialStates(F.interpolate(low, size=self.size, mode="bilinear", align_corners=False))
