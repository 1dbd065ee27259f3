"""Maximum likelihood by Langevin sampling. The trainer does not know for how long chains are meant to run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ebmlife.data import Batches
from ebmlife.errors import BadInput
from ebmlife.sampling.energy import Energy, total
from ebmlife.sampling.fast import Precision, prepare
from ebmlife.sampling.learned import learned_energy
from ebmlife.sampling.rng import Noise
from ebmlife.training.base import Loop, Report
from ebmlife.training.chains import Chains
from ebmlife.training.divergence import Divergence
from ebmlife.training.learner import Average, Learner, no_reduce


@dataclass(frozen=True)
class EBMMetrics(Report):
    """The metrics of one update. Energies are those of the learned term U(x) / T. All but `update` are means over the
    processes that share the work."""

    headline: ClassVar[str] = "energy_difference"

    energy_difference: float  # mean U(x+) / T - mean U(x-) / T
    energy_data: float
    energy_samples: float
    gradient: float  # mean |grad E| along the walk
    generator_loss: float | None  # mean over images of |g(z) - x-|^2


class TrainableEnergy:
    """The energy that is trained, E(x) = U(x) / T + fixed terms.

    The loss is that of the learned term alone, `learned` = U(x) / T. Chains walk on `full` = E(x).

    Args:
        net: The network U, or a `Learner` of it. A network alone is learned by Adam with a learning rate of 1e-4.
        temperature: T.
        fixed: Energies that are added and do not learn, such as a prior or a Gaussian term.
        precision: Precision of the network while chains walk, as in `ebmlife.prepare`.
    """

    def __init__(
        self,
        net: nn.Module | Learner,
        *,
        temperature: float = 1.0,
        fixed: Sequence[Energy] = (),
        precision: Precision = "f32",
    ) -> None:
        self.learner = net if isinstance(net, Learner) else Learner(net)
        self.learned: Energy = learned_energy(self.learner.net, temperature=temperature)
        self.temperature = temperature
        self.full: Energy = total(prepare(self.learner.net, temperature=temperature, precision=precision), *fixed)


class Trainer(Loop[EBMMetrics]):
    """Trains an energy by maximum likelihood, and a generator beside it if there is one.

    Args:
        batches: The data.
        chains: The chains that samples come from.
        energy: The energy to train. A network alone becomes `TrainableEnergy(net)`.
        learned: With `ebm`, the earlier way to give an energy: the learned term, U(x) / T.
        ebm: The learner of the network. Then `energy` is what chains walk on.
        generator: The learner of a generator that is trained to reproduce the samples, g(z) -> x-. None: no generator
            learns.
        data_noise: Standard deviation of the noise on the data, "data epsilon" in the paper.
        energy_l2: Weight of the penalty on squared energies, which keeps them near 0. 0: there is none.
        noise: Draws that noise.
        divergence: Stops a training that diverges. None: by its default settings.
        device: Where the networks are.
        average: Averages tensors over the processes that share the work.
    """

    chains: Chains

    def __init__(
        self,
        batches: Batches,
        chains: Chains,
        energy: TrainableEnergy | nn.Module | Learner | Energy,
        *,
        learned: Energy | None = None,
        ebm: Learner | None = None,
        generator: Learner | None = None,
        data_noise: float = 0.0,
        energy_l2: float = 0.0,
        noise: Noise = torch.randn_like,
        divergence: Divergence | None = None,
        device: torch.device | str = "cpu",
        average: Average = no_reduce,
    ) -> None:
        self.batches, self.chains, self.energy = batches, chains, _trainable(energy, learned, ebm)
        self.ebm, self.generator = self.energy.learner, generator
        self.data_noise, self.noise, self.device = data_noise, noise, device
        self.energy_l2 = energy_l2
        self.divergence = Divergence() if divergence is None else divergence
        self.average = average

    def step(self) -> EBMMetrics:
        """One update: theta <- theta - lr * grad [mean U(x+) / T - mean U(x-) / T], eq. (2) of the paper.

        With `energy_l2`, the loss has the term energy_l2 (mean U(x+)^2 + mean U(x-)^2) / T too.
        """
        data = self.batches.next().to(self.device)
        waited = torch.tensor(self.batches.waited())
        data = data + self.data_noise * self.noise(data)
        negatives = self.chains.step(self.energy.full, len(data), update=self.update)
        energies = self.energy.learned(torch.cat([data, negatives.x]))
        of_data, of_samples = energies.view(2, -1).mean(1)
        seen = self._means(of_data, of_samples, of_data - of_samples, negatives.info.gradient, waited)
        self.divergence.check(
            of_data=seen[0], of_samples=seen[1], difference=seen[2], gradient=seen[3], update=self.update
        )
        loss = of_data - of_samples
        if self.energy_l2:
            loss = loss + 2 * self.energy_l2 * self.energy.temperature * energies.square().mean()
        self.ebm.descend(loss, update=self.update)
        generator_loss = None
        if self.generator is not None and negatives.z is not None:
            loss = reconstruction(self.generator.net(negatives.z), negatives.x)
            self.generator.descend(loss, update=self.update)
            (generator_loss,) = self._means(loss)
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

    def _means(self, *numbers: Tensor) -> list[float]:
        """Means over the processes that share the work, so that all of them see the same numbers."""
        averaged = torch.stack([number.detach().to(self.device, torch.float32) for number in numbers])
        self.average([averaged])
        means: list[float] = averaged.tolist()
        return means

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
        if "divergence" in state:  # older runs have not saved it
            self.divergence.load_state_dict(state["divergence"])


def reconstruction(generated: Tensor, walked: Tensor) -> Tensor:
    """Mean over images of |g(z) - x-|^2, the sum of squares of each (eq. coop_loss); no gradient into x-."""
    return (generated - walked.detach()).square().flatten(1).sum(1).mean()


def _trainable(energy: object, learned: Energy | None, ebm: Learner | None) -> TrainableEnergy:
    """The energy of a trainer, however it was given."""
    if ebm is not None and callable(energy):
        found = TrainableEnergy(ebm)
        found.full = energy
        if learned is not None and learned is not ebm.net:
            found.learned = learned
        return found
    if learned is not None or ebm is not None or not isinstance(energy, TrainableEnergy | nn.Module | Learner):
        raise BadInput(
            "a trainer is given one energy: Trainer(batches, chains, TrainableEnergy(net, temperature=...)); "
            "with learned= and energy= apart it also needs ebm=Learner(net)"
        )
    return energy if isinstance(energy, TrainableEnergy) else TrainableEnergy(energy)
