"""Purification: Langevin steps that start at given images."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ebmlife.errors import BadInput, Diverged
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.kernels import Kernel, make_kernel
from ebmlife.sampling.kernels.interface import HasStates
from ebmlife.sampling.loop import run_kernel
from ebmlife.sampling.rng import PerImageNoise, derive_seed

_FAR = 10.0  # the states of a chain and noise stay well below this; pixels from 0 to 255 are well above
_WIDTH = 8  # chains of a group: with this many, its noise costs little more than one draw for all chains


class ChainGroup(NamedTuple):
    """Chains that start at one image and draw their noise from one generator."""

    image: int  # row of the batch
    seed: int
    chains: int


class Purifier(nn.Module):
    """T(x): `steps` Langevin steps on `energy` from x, one chain for each image. It has no gradient.

    The noise is new in each call and comes from PyTorch's global generator. With `seed` it is the same in every call
    and for every image, so that the result for an image does not depend on the rest of its batch.

    Args:
        energy: Any callable (B, ...) -> (B,).
        steps: Number of Langevin steps (K in the paper).
        step_size: Langevin step size.
        clip: Longest drift of a step; None does not clip.
        seed: Seed of noise that is always the same; None draws new noise in each call.
        batch: Number of chains that are walked together. A batch below 8 changes which noise is drawn; otherwise the
            batch changes no result.
        sampler: Name of the sampling kernel: "langevin", "mala", "underdamped" or "replica-exchange". The step size is
            fixed: there is no warm-up.

    Raises:
        BadInput: A value is out of range.
    """

    def __init__(
        self,
        energy: Energy,
        *,
        steps: int = 1500,
        step_size: float = 1e-2,
        clip: float | None = None,
        seed: int | None = None,
        batch: int = 256,
        sampler: str = "langevin",
    ) -> None:
        super().__init__()
        if steps < 0 or not 0 < step_size < float("inf") or batch < 1:
            raise BadInput(
                "a purifier needs steps of at least 0, a step_size above 0 and a batch of at least 1, "
                f"got {steps}, {step_size} and {batch}"
            )
        self.energy = energy
        # Private, because public attributes are part of the fingerprint by which saved attacks are resumed.
        self._sampler = sampler
        self.steps, self.step_size, self.clip, self.seed, self.batch = steps, step_size, clip, seed, batch
        _ = self._kernel  # an unknown sampler, or one that needs an energy, raises here

    @property
    def sampler(self) -> str:
        """The name of the sampling kernel."""
        return self._sampler

    @property
    def _kernel(self) -> Kernel[Any]:
        return make_kernel(self.sampler, self.energy, step_size=self.step_size, clip=self.clip, warm_up=0)

    def forward(self, x: Tensor, *, seeds: Sequence[int] | None = None) -> Tensor:
        """Returns the end of one chain from each image.

        Args:
            x: Images (B, C, H, W) in [-1, 1].
            seeds: A seed for the noise of each image; None: new ones, or the purifier's own.
        """
        check_range(x)
        purified = torch.empty_like(x, memory_format=torch.contiguous_format)
        for part in self.parts(self.seeds(len(x)) if seeds is None else seeds, replicas=1):
            rows = [group.image for group in part]
            purified[rows] = self.walk(x[rows], self.noise(part, x.device))
        return purified

    def seeds(self, images: int) -> list[int]:
        """Returns a seed for each image: new ones, or the purifier's own."""
        if self.seed is not None:
            return [self.seed] * images
        drawn: list[int] = torch.randint(2**62, (images,)).tolist()
        return drawn

    def parts(self, seeds: Sequence[int], *, replicas: int) -> Iterator[list[ChainGroup]]:
        """Yields the groups of `replicas` chains from each image, in parts of at most `batch` chains."""
        width = min(_WIDTH, self.batch)
        part: list[ChainGroup] = []
        for image, seed in enumerate(seeds):
            for first in range(0, replicas, width):
                group = ChainGroup(image, derive_seed(seed, f"lane {first}"), min(width, replicas - first))
                if sum(other.chains for other in part) + group.chains > self.batch:
                    yield part
                    part = []
                part.append(group)
        if part:
            yield part

    def noise(self, part: Sequence[ChainGroup], device: torch.device) -> PerImageNoise:
        return PerImageNoise([group.seed for group in part], [group.chains for group in part], device=device)

    def trajectory(self, x: Tensor, *, at: Sequence[int], seeds: Sequence[int]) -> Tensor:
        """Returns the states (len(at), B, ...) of the chains of `forward` after each number of steps in `at`."""
        check_range(x)
        found = [torch.empty_like(x) for _ in at]
        for part in self.parts(seeds, replicas=1):
            rows = [group.image for group in part]
            noise = self.noise(part, x.device)
            state = self._kernel.init(self.energy, x[rows], noise)
            for states, (done, step) in zip(found, pairwise([0, *at]), strict=True):
                state = self._run(state, noise, step - done)
                states[rows] = state.x
        return torch.stack(found)

    def walk(self, x: Tensor, noise: PerImageNoise, *, steps: int | None = None) -> Tensor:
        """Returns x after `steps` Langevin steps, by default the purifier's own number."""
        steps = self.steps if steps is None else steps
        walked: Tensor = self._run(self._kernel.init(self.energy, x, noise), noise, steps).x
        return walked

    def _run(self, state: HasStates, noise: PerImageNoise, steps: int) -> HasStates:
        state, _ = run_kernel(self._kernel, self.energy, state, steps=steps, noise=noise)
        if not state.x.isfinite().all():
            raise Diverged(f"a purified image is not finite after {steps} steps of size {self.step_size}")
        return state


def check_range(x: Tensor) -> None:
    """Raises BadInput for pixels from 0 to 255, which Langevin steps would destroy without an error."""
    most = x.detach().abs().max().item() if x.numel() else 0.0
    if most > _FAR:
        raise BadInput(f"images must be in [-1, 1], got values up to {most:g}; scale pixels by x / 127.5 - 1")
