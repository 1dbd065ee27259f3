"""A trained model: its networks, its energy, the start of its chains, and samples from it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from ebmlife.errors import BadInput
from ebmlife.recipes.schema import Recipe
from ebmlife.runs.prior import FixedPrior
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.kernels import WARM_UP, make_kernel
from ebmlife.sampling.loop import sample
from ebmlife.sampling.purifier import Purifier
from ebmlife.sampling.rng import INITIAL_STATES, Streams, normal
from ebmlife.training.starts import Start

MOST = 10**7  # samples in one call


@dataclass(frozen=True)
class Model:
    """The networks of a run, and everything that is needed to sample from them."""

    net: nn.Module
    energy: Energy  # net / temperature, plus prior and Gaussian term if the recipe has them
    generator: nn.Module | None
    start: Start
    recipe: Recipe
    shape: tuple[int, ...]
    device: torch.device
    prior: FixedPrior | None = None

    def sample(
        self,
        n: int,
        *,
        steps: int | None = None,
        seed: int = 0,
        batch: int = 256,
        scope: str = "sample",
        sampler: str = "langevin",
    ) -> Tensor:
        """Samples from the model.

        Args:
            n: The number of samples.
            steps: Number of Langevin steps from the model's start. None: the sampling_steps of the recipe.
            seed: Seed of the random streams.
            batch: Number of chains that run together. It changes the samples.
            scope: Purpose of the samples. The same seed gives different samples in another scope.
            sampler: Name of the sampling kernel: "langevin", "mala", "underdamped" or "replica-exchange". All but the
                first adapt their step size, from the recipe's, in their first 500 steps.

        Returns:
            States of shape (n, C, H, W).
        """
        return torch.cat(list(self.stream(n, steps=steps, seed=seed, batch=batch, scope=scope, sampler=sampler)))

    def stream(
        self,
        n: int,
        *,
        steps: int | None = None,
        seed: int = 0,
        batch: int = 256,
        scope: str = "sample",
        sampler: str = "langevin",
    ) -> Iterator[Tensor]:
        """Yields the states of `sample` in batches, so that memory does not grow with n."""
        return (make() for make in self.blocks(n, steps=steps, seed=seed, batch=batch, scope=scope, sampler=sampler))

    def blocks(
        self,
        n: int,
        *,
        steps: int | None = None,
        seed: int = 0,
        batch: int = 256,
        scope: str = "sample",
        sampler: str = "langevin",
    ) -> list[Callable[[], Tensor]]:
        """Returns functions that draw one batch of `sample` each. They can be called in any order and any process."""
        if not 1 <= n <= MOST:
            raise BadInput(f"the number of samples must be at least 1 and at most {MOST}, got {n}")
        if batch < 1:
            raise BadInput(f"a batch must have at least 1 sample, got {batch}")
        if steps is not None and steps < 0:
            raise BadInput(f"the number of Langevin steps must not be negative, got {steps}")
        steps = self.recipe.sampling_steps if steps is None else steps
        make_kernel(sampler, self.energy, step_size=self.recipe.langevin.step_size)  # it must fit
        sizes = [min(batch, n - done) for done in range(0, n, batch)]
        make = partial(self._block, steps=steps, seed=seed, sampler=sampler)
        return [partial(make, size, scope=f"{scope}/{index}/") for index, size in enumerate(sizes)]

    def purifier(
        self,
        steps: int | None = None,
        *,
        step_size: float | None = None,
        seed: int | None = None,
        batch: int = 256,
        sampler: str = "langevin",
    ) -> Purifier:
        """Returns a purifier on the model's energy, with the step size and the clipping of the recipe.

        Args:
            steps: Number of Langevin steps. None: the sampling_steps of the recipe.
            step_size: Langevin step size. None: that of the recipe.
            seed: Seed of noise that is always the same; None draws new noise in each call.
            batch: Number of chains that are walked together.
            sampler: Name of the sampling kernel, with a fixed step size.

        Raises:
            BadInput: `steps` is None, and the recipe samples without Langevin steps; or a value is out of range.
        """
        if steps is None and not self.recipe.sampling_steps:
            raise BadInput(
                f"{self.recipe.name} samples without Langevin steps, so the steps of a purifier must be given: "
                "attack --k, purify --steps, or model.purifier(steps)"
            )
        return Purifier(
            self.energy,
            steps=self.recipe.sampling_steps if steps is None else steps,
            step_size=self.recipe.langevin.step_size if step_size is None else step_size,
            clip=self.recipe.langevin.clip,
            seed=seed,
            batch=batch,
            sampler=sampler,
        )

    def _block(self, size: int, *, steps: int, seed: int, scope: str, sampler: str) -> Tensor:
        streams = Streams(seed, device=self.device, scope=scope)
        step_size, clip = self.recipe.langevin.step_size, self.recipe.langevin.clip
        x, noise = self.start(size, rng=streams[INITIAL_STATES]).x, normal(streams["langevin"])
        return sample(
            sampler, self.energy, x, steps=steps, step_size=step_size, noise=noise, clip=clip, warm_up=WARM_UP
        )[0]
