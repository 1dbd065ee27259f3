"""Maximum likelihood by Langevin sampling. The trainer does not know how long the chains are meant to live."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ebmlife.data import Batches
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.rng import Noise
from ebmlife.training.base import Loop, Report
from ebmlife.training.chains import Chains
from ebmlife.training.divergence import Divergence
from ebmlife.training.learner import Average, Learner, no_reduce


@dataclass(frozen=True)
class EBMMetrics(Report):
    """What one update was like; energies are those of the trainable term, divided by the temperature. All but `update`
    are means over the processes that share the work."""

    headline: ClassVar[str] = "energy_difference"

    energy_difference: float  # mean U(x+) - mean U(x-)
    energy_data: float
    energy_samples: float
    gradient: float  # mean |grad E| along the walk
    generator_loss: float | None  # mean over images of |g(z) - x-|^2


class Trainer(Loop[EBMMetrics]):
    chains: Chains

    def __init__(
        self,
        batches: Batches,
        chains: Chains,
        *,
        learned: Energy,  # the trainable term: what the loss is of
        energy: Energy,  # all of it: what chains walk on
        ebm: Learner,
        generator: Learner | None = None,
        data_noise: float = 0.0,  # "data epsilon" in the paper
        noise: Noise = torch.randn_like,
        divergence: Divergence | None = None,  # None: by its default settings
        device: torch.device | str = "cpu",
        average: Average = no_reduce,
    ) -> None:
        self.batches, self.chains, self.learned, self.energy = batches, chains, learned, energy
        self.ebm, self.generator = ebm, generator
        self.data_noise, self.noise, self.device = data_noise, noise, device
        self.divergence = Divergence() if divergence is None else divergence
        self.average = average

    def step(self) -> EBMMetrics:
        """One update: theta <- theta - lr * grad [mean U(x+) - mean U(x-)], eq. (2) of the paper."""
        data = self.batches.next().to(self.device)
        waited = torch.tensor(self.batches.waited())
        data = data + self.data_noise * self.noise(data)
        negatives = self.chains.step(self.energy, len(data), update=self.update)
        energies = self.learned(torch.cat([data, negatives.x]))
        of_data, of_samples = energies.view(2, -1).mean(1)
        seen = self._agreed(of_data, of_samples, of_data - of_samples, negatives.info.gradient, waited)
        self.divergence.check(
            of_data=seen[0], of_samples=seen[1], difference=seen[2], gradient=seen[3], update=self.update
        )
        self.ebm.descend(of_data - of_samples, update=self.update)
        generator_loss = None
        if self.generator is not None and negatives.z is not None:
            loss = reconstruction(self.generator.net(negatives.z), negatives.x)
            self.generator.descend(loss, update=self.update)
            (generator_loss,) = self._agreed(loss)
        self.update += 1
        return EBMMetrics(
            update=self.update,
            energy_data=seen[0],
            energy_samples=seen[1],
            energy_difference=seen[2],
            gradient=seen[3],
            generator_loss=generator_loss,
            data_seconds=seen[4],
        )

    def _agreed(self, *numbers: Tensor) -> list[float]:
        """Means over the processes that share the work, so that all of them see, and judge, the same."""
        means = torch.stack([number.detach().to(self.device, torch.float32) for number in numbers])
        self.average([means])
        agreed: list[float] = means.tolist()
        return agreed

    def state_dict(self) -> dict[str, Any]:
        return {
            "update": self.update,
            "batches": self.batches.state_dict(),
            "chains": self.chains.state_dict(),
            "ebm": self.ebm.state_dict(),
            "generator": None if self.generator is None else self.generator.state_dict(),
            "divergence": self.divergence.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.update = state["update"]
        self.batches.load_state_dict(state["batches"])
        self.chains.load_state_dict(state["chains"])
        self.ebm.load_state_dict(state["ebm"])
        if self.generator is not None:
            self.generator.load_state_dict(state["generator"])
        if "divergence" in state:  # runs that are older begin to judge anew
            self.divergence.load_state_dict(state["divergence"])


def reconstruction(generated: Tensor, walked: Tensor) -> Tensor:
    """Mean over images of |g(z) - x-|^2, the sum of squares of each (eq. coop_loss); no gradient into x-."""
    return (generated - walked.detach()).square().flatten(1).sum(1).mean()
