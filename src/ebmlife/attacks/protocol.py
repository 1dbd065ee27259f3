"""Algorithm 2 of the paper: attack steps on averaged logits, and breaks that count after a second, larger draw.

It differs from the printed algorithm in two points, and both can only lower the accuracy. An image that is classified
wrongly before any attack counts as broken, and the last adversary X_N is evaluated too.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ebmlife.attacks import losses, optimizers
from ebmlife.attacks.config import AttackConfig
from ebmlife.attacks.optimizers import Ascent, Optimizer
from ebmlife.attacks.tally import NONE, Tally
from ebmlife.defense.defended import DefendedClassifier
from ebmlife.defense.gradients import Transfer, attacked_through
from ebmlife.errors import Diverged
from ebmlife.sampling.energy import frozen
from ebmlife.sampling.rng import derive_seed, generator


@dataclass(frozen=True)
class Evaluation:
    """The stages of an attack on a group of images. `config` comes from `AttackConfig.for_defense`."""

    robust: DefendedClassifier
    config: AttackConfig

    @property
    def stages(self) -> int:
        """The number of stages: the natural images, X_0 to X_N, and each final evaluation."""
        return self.first_final + self.config.evaluations

    @property
    def first_final(self) -> int:
        """The first final evaluation: the first stage that includes broken images again."""
        return self.config.steps + 2

    @property
    def walks(self) -> list[int]:
        """The number of chains that each stage walks for an image, verifications excluded."""
        attack_step = self.replicas * (1 + self._walks_back)
        verify, config = self.config.verify, self.config
        return [verify, *[attack_step] * config.steps, self.replicas, *[verify] * config.evaluations]

    @property
    def replicas(self) -> int:
        return self.config.replicas or self.robust.replicas

    @cached_property
    def _optimizer(self) -> Optimizer:
        return optimizers.find(self.config.method)(self.config.threat, self.config.length)

    @property
    def _walks_back(self) -> int:
        """How many times a chain is walked again for a gradient."""
        return self.robust.gradient.walks if self._optimizer.needs_gradient else 0

    def advance(self, tally: Tally, origin: Tensor, stage: int) -> None:
        """Runs one stage for the natural images `origin`, and writes the predictions into the tally."""
        step = stage - 1
        if stage == 0:
            self._begin(tally, origin)
        elif stage >= self.first_final:
            self._final_evaluation(tally, origin.device, stage - self.first_final)
        elif len(tally.unbroken()):
            self._attack_step(tally, origin, step)

    def _begin(self, tally: Tally, origin: Tensor) -> None:
        """Predicts the natural images, and starts the attack on those that are classified correctly."""
        tally.natural = self._classify(tally, origin, tally.ids, "natural").argmax(1)
        for row in tally.unbroken().tolist():
            rng = generator(self.config.seed, f"{tally.ids[row]}/start", device=origin.device)
            tally.adversaries[row] = self._optimizer.start(origin[row], rng=rng).cpu()

    def _attack_step(self, tally: Tally, origin: Tensor, step: int) -> None:
        """Predicts X_j, verifies the predictions that are wrong, and moves from X_j to X_(j+1)."""
        rows = tally.unbroken()
        x, last = tally.adversaries[rows].to(origin.device), step == self.config.steps
        predicted, ascent = self._evaluate_batch(tally, x, rows, step, ascend=not last)
        tally.attacked[rows, step] = predicted
        self._verify(tally, x, rows, predicted != tally.labels[rows], step)
        if ascent is not None:
            moved = self._optimizer.step(x, origin[rows], ascent).cpu()
            unbroken = tally.broken_at[rows] == NONE  # a broken image keeps the adversary that broke it
            tally.adversaries[rows[unbroken]] = moved[unbroken]

    def _verify(self, tally: Tally, x: Tensor, rows: Tensor, wrong: Tensor, step: int) -> None:
        """Classifies the adversaries that are predicted wrongly again, with the larger draw."""
        if not wrong.any():
            return
        again = self._classify(tally, x[wrong], tally.ids[rows[wrong]], f"verify {step}").argmax(1)
        tally.verified[rows[wrong], step] = again
        tally.broken_at[rows[wrong][again != tally.labels[rows[wrong]]]] = step

    def _final_evaluation(self, tally: Tally, device: torch.device, evaluation: int) -> None:
        """Classifies the last adversaries of all images once more."""
        logits = self._classify(tally, tally.adversaries.to(device), tally.ids, f"final {evaluation}")
        tally.final[:, evaluation] = logits.argmax(1)
        tally.logits = tally.logits + logits if evaluation else logits

    def _classify(self, tally: Tally, x: Tensor, ids: Tensor, purpose: str) -> Tensor:
        """Returns the logits of the larger draw, which is the attack's own draw where the noise is known."""
        with torch.no_grad():
            logits = self.robust(x, replicas=self.config.verify, seeds=self._seeds(ids, purpose))
        tally.image_steps += len(x) * self.config.verify * self.robust.purifier.steps
        return _finite(logits, f"logits of the evaluation '{purpose}'").cpu()

    def _evaluate_batch(
        self, tally: Tally, x: Tensor, rows: Tensor, step: int, *, ascend: bool
    ) -> tuple[Tensor, Ascent | None]:
        """Returns the predictions (n,) with the attack's replicas and, if `ascend`, the loss and its gradient."""
        at_once = max(1, self.robust.purifier.batch // self.replicas)  # a gradient keeps the walked images in memory
        found = [
            self._ascent(x[part], tally.labels[rows[part]], tally.ids[rows[part]], step, ascend=ascend)
            for part in torch.split(torch.arange(len(x)), at_once)
        ]
        chains = len(x) * self.replicas * (1 + self._walks_back * ascend)
        tally.image_steps += chains * self.robust.purifier.steps
        tally.gradients += len(x) * (ascend and self._optimizer.needs_gradient)
        ascents = [ascent for _, ascent in found if ascent is not None]
        return torch.cat([predicted for predicted, _ in found]), _joined(ascents) if ascents else None

    def _ascent(self, x: Tensor, y: Tensor, ids: Tensor, step: int, *, ascend: bool) -> tuple[Tensor, Ascent | None]:
        robust, seeds = self.robust, self._seeds(ids, f"attack {step}")
        needs_gradient = ascend and self._optimizer.needs_gradient
        ignores_defense = isinstance(attacked_through(robust.gradient), Transfer)
        leaf = x.clone().requires_grad_(needs_gradient)
        logits = robust(leaf.detach() if ignores_defense else leaf, replicas=self.replicas, seeds=seeds)
        predicted = _finite(logits.detach(), f"logits at attack step {step}").argmax(1).cpu()
        if not ascend:
            return predicted, None
        with frozen(robust.classifier, walking=False):
            attacked = robust.classifier(leaf) if ignores_defense else logits
            loss = losses.find(self.config.loss)(attacked, y.to(x.device))
            if not needs_gradient:
                return predicted, Ascent(step, loss.detach(), None)
            (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        _finite(gradient, f"{robust.gradient.name} gradient at attack step {step}")
        return predicted, Ascent(step, loss.detach(), gradient)

    def _seeds(self, ids: Tensor, purpose: str) -> list[int]:
        """Returns a seed for each image, derived from its id and the purpose of the draw."""
        if self.robust.purifier.seed is not None:  # this defense always draws the same noise
            return [self.robust.purifier.seed] * len(ids)
        name = "known" if self.robust.gradient.known_noise else purpose
        return [derive_seed(self.config.seed, f"{image}/{name}") for image in ids.tolist()]


def _joined(ascents: list[Ascent]) -> Ascent:
    gradients = [ascent.gradient for ascent in ascents if ascent.gradient is not None]
    loss = torch.cat([ascent.loss for ascent in ascents])
    return Ascent(ascents[0].step, loss, torch.cat(gradients) if gradients else None)


def _finite(values: Tensor, what: str) -> Tensor:
    if not values.isfinite().all():
        raise Diverged(f"the {what} are not finite")
    return values
