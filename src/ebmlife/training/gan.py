"""SNGAN (Miyato et al. 2018): a generator against a spectrally normalized discriminator, with the hinge loss."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ebmlife.data import Batches
from ebmlife.sampling.energy import frozen
from ebmlife.training.base import Loop, Report
from ebmlife.training.learner import Learner


def hinge_loss(of_data: Tensor, of_samples: Tensor) -> Tensor:
    """mean max(0, 1 - D(x)) + mean max(0, 1 + D(g(z)))."""
    return F.relu(1 - of_data).mean() + F.relu(1 + of_samples).mean()


@dataclass(frozen=True)
class GANMetrics(Report):
    """The metrics of one update of a GAN."""

    headline: ClassVar[str] = "discriminator_loss"

    discriminator_loss: float  # 2 if it cannot tell samples from data
    generator_loss: float  # - mean D(g(z))
    score_data: float  # mean D(x)
    score_samples: float  # mean D(g(z)) in the discriminator's last step


class GANTrainer(Loop[GANMetrics]):
    """Trains a generator against a discriminator.

    Args:
        batches: The data.
        discriminator: The learner of the discriminator.
        generator: The learner of the generator.
        rng: Generator of the latents.
        discriminator_steps: Steps of the discriminator per update.
        generator_batch: Batch size of the generator's step.
        device: Where the networks are.
    """

    stateful = ("batches", "discriminator", "generator")

    def __init__(
        self,
        batches: Batches,
        *,
        discriminator: Learner,
        generator: Learner,
        rng: torch.Generator,
        discriminator_steps: int = 5,
        generator_batch: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.batches, self.discriminator, self.generator, self.rng = batches, discriminator, generator, rng
        self.discriminator_steps, self.generator_batch, self.device = discriminator_steps, generator_batch, device
        self.latent = int(generator.net.latent)  # type: ignore[arg-type]  # a plain attribute of the network

    def step(self) -> GANMetrics:
        """`discriminator_steps` steps that lower the hinge loss, then one of the generator that raises D(g(z))."""
        for _ in range(self.discriminator_steps):
            data = self.batches.next().to(self.device)
            with torch.no_grad():
                samples = self._generated(len(data))
            of_data, of_samples = self.discriminator.net(torch.cat([data, samples])).chunk(2)
            loss = hinge_loss(of_data, of_samples)
            self.discriminator.descend(loss, update=self.update)
        with frozen(self.discriminator.net) as discriminator:
            generator_loss = -discriminator(self._generated(self.generator_batch)).mean()
        self.generator.descend(generator_loss, update=self.update)
        self.update += 1
        return GANMetrics(
            update=self.update,
            data_seconds=self.batches.waited(),
            discriminator_loss=loss.item(),
            generator_loss=generator_loss.item(),
            score_data=of_data.mean().item(),
            score_samples=of_samples.mean().item(),
        )

    def _generated(self, n: int) -> Tensor:
        x: Tensor = self.generator.net(torch.randn(n, self.latent, generator=self.rng, device=self.rng.device))
        return x


class CriticEnergy(nn.Module):
    """E(x) = -D(x). Its chains move toward states that the discriminator classifies as data."""

    def __init__(self, discriminator: nn.Module) -> None:
        super().__init__()
        self.discriminator = discriminator

    def forward(self, x: Tensor) -> Tensor:
        energy: Tensor = -self.discriminator(x)
        return energy
