"""Algorithm 2 of the paper: projected gradient ascent on averaged logits, breaks believed after a second draw.

Differences from its print: an image that is wrong before any attack counts as broken; X_N, the last adversary, is
checked too. Both can only lower the accuracy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ebmlife.attacks import losses, validation
from ebmlife.attacks.losses import Loss
from ebmlife.attacks.progress import Meter, Watcher
from ebmlife.attacks.record import EVALUATED_ON, NONE, Record, Tally
from ebmlife.attacks.threat import Threat
from ebmlife.attacks.workspace import Storage, held, refuse_another
from ebmlife.defense.gradients import Transfer, attacked_through
from ebmlife.defense.purifier import DefendedClassifier, undefended
from ebmlife.distributed import SINGLE_PROCESS, Ranks
from ebmlife.errors import Diverged, at_least
from ebmlife.sampling.energy import frozen
from ebmlife.sampling.rng import derive_seed, generator


def evaluate(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    threat: Threat | str,  # or its text: "linf:8/255"
    steps: int = 50,  # N in the paper
    step_size: float | None = None,  # alpha in the paper, in pixels of [0, 1]; None: a quarter of the radius
    replicas: int | None = None,  # H_adv in the paper; None: those of the model
    verify: int = 128,  # H_def in the paper
    evaluations: int = 5,  # of the last adversaries, for three of the record's accuracies
    loss: str | Loss = "cross-entropy",
    seed: int = 0,
    ids: Sequence[int] | None = None,  # names of the images' random draws; None: 0, 1, 2, ...
    group: int | None = None,  # images that are attacked side by side; None: as many as fill three walks
    folder: Path | str | None = None,
    evaluated_on: Mapping[str, Any] | None = None,  # where the images come from, for the record
    save_every: float = 10.0,  # seconds
    watch: Watcher = lambda progress: None,
    ranks: Ranks = SINGLE_PROCESS,
) -> Record:
    """Attacks a defended classifier, or any other, at images x in [-1, 1] with labels y.

    Every draw is named by (seed, image, what it is for), so that no image's fate depends on its company. With `folder`
    the attack is kept there as it goes on, and the same call goes on where a killed one was. Several ranks share the
    groups; each watches its own, and all of them return the record, which is that of one process.
    """
    ids = range(len(x)) if ids is None else ids
    attack, named = _validate(
        model,
        x,
        y,
        ids,
        threat=threat,
        steps=steps,
        step_size=step_size,
        replicas=replicas,
        verify=verify,
        evaluations=evaluations,
        loss=loss,
        seed=seed,
        group=group,
        folder=folder,
        evaluated_on=evaluated_on,
    )
    storage = Storage(folder, named, every=save_every)
    with storage.opened(ranks) as found:
        if found is not None:
            return found
        record = Record(storage.settings, _tally(attack, x, y, ids, storage, watch, ranks))
        with ranks.raise_on_all():
            if ranks.first:
                storage.finish(record)
    return record


def settings(model: nn.Module, x: Tensor, y: Tensor, *, folder: Path | str | None, **options: Any) -> dict[str, Any]:
    """What `evaluate` would know its attack by in that folder: `options` are its arguments up to the seed.

    Mistakes, and a folder that holds another attack, are a BadInput as they are there; nothing is written.
    """
    _, named = _validate(model, x, y, range(len(x)), group=None, folder=folder, **options)
    refuse_another(folder, named)
    return named


def _validate(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    ids: Sequence[int],
    *,
    threat: Threat | str,
    steps: int,
    step_size: float | None,
    replicas: int | None,
    verify: int,
    evaluations: int,
    loss: str | Loss,
    seed: int,
    group: int | None,
    folder: Path | str | None,
    evaluated_on: Mapping[str, Any] | None = None,
) -> tuple["_Attack", dict[str, Any]]:
    """The attack, and the settings that it is known by, the size of its groups among them."""
    robust = model if isinstance(model, DefendedClassifier) else undefended(model)
    threat = Threat.of(threat)
    validation.whole_numbers(
        steps=steps, replicas=replicas, verify=verify, evaluations=evaluations, seed=seed, group=group
    )
    step_size = threat.radius / 4 if step_size is None else step_size
    replicas = robust.replicas if replicas is None else replicas
    at_least(1, "attack", replicas=replicas, verify=verify, evaluations=evaluations)
    validation.attack(robust, x, y, ids, steps=steps, replicas=replicas, verify=verify)
    validation.lengths(threat, step_size, x)
    climbed, y = losses.find(loss), y.long()
    validation.loss(climbed, robust.classifier, x, y)
    if folder is not None:
        validation.lasting(loss, robust.gradient)
    if not robust.purifier.steps:
        replicas = 1  # all would be alike
    if not robust.purifier.steps or robust.gradient.known_noise:
        verify = replicas  # there is no other draw
    before = held(folder)
    if group is None:  # what is begun goes on in the groups that it has, whatever the batch is now
        group = before.get("group", max(1, 3 * robust.purifier.batch // replicas))
    at_least(1, "attack", group=group)
    attack = _Attack(robust, threat, steps, step_size, replicas, verify, evaluations, climbed, seed)
    named = attack.settings() | {"loss": losses.name(loss), "group": group} | validation.fingerprints(robust, x, y, ids)
    if evaluated_on is not None:
        named[EVALUATED_ON] = dict(evaluated_on)
    if not before or "note" in before:  # some folders are from before there were notes
        named |= validation.notes(robust, x)
    if robust.gradient.known_noise and before:
        named["verify"] = before.get("verify")  # some folders name a larger draw, which was never made
    return attack, named


def _tally(
    attack: "_Attack", x: Tensor, y: Tensor, ids: Sequence[int], storage: Storage, watch: Watcher, ranks: Ranks
) -> Tally:
    """Of all images, those of other ranks too."""
    group = storage.settings["group"]
    groups = list(enumerate(torch.split(torch.arange(len(x)), group)))[ranks.part(-(-len(x) // group))]
    meter = Meter(sum(len(rows) for _, rows in groups), walks=attack.walks, final=attack.steps + 2, watch=watch)
    tallies = []
    with ranks.raise_on_all(unevenly=True):  # broken images are soon done with
        for index, rows in groups:
            images, labels, names = x[rows], y[rows].long().cpu(), torch.tensor(ids)[rows]
            blank = Tally.blank(names, labels, images.cpu(), steps=attack.steps, evaluations=attack.evaluations)
            tallies.append(_attacked(attack, index, blank, images, storage, meter))
    return Tally.gathered(tallies, ranks)


def _attacked(attack: "_Attack", index: int, blank: Tally, images: Tensor, storage: Storage, meter: Meter) -> Tally:
    """A group after all stages, from the first or from where it was kept."""
    tally, stage = storage.part(index, blank, stages=attack.stages)
    meter.enter(tally, stage)
    while stage < attack.stages:
        attack.advance(tally, images, stage)
        stage += 1
        storage.keep(index, tally, stage, last=stage == attack.stages)
        meter.show(tally, stage)
    meter.leave(tally)
    return tally


@dataclass(frozen=True)
class _Attack:
    robust: DefendedClassifier
    threat: Threat
    steps: int
    step_size: float
    replicas: int
    verify: int
    evaluations: int
    loss: Loss
    seed: int

    @property
    def stages(self) -> int:
        """The natural images; X_0 to X_N; each final evaluation."""
        return self.steps + 2 + self.evaluations

    @property
    def walks(self) -> list[int]:
        """Chains walked for an image in each stage, but for verifications."""
        strike = self.replicas * (1 + self.robust.gradient.walks)
        return [self.verify, *[strike] * self.steps, self.replicas, *[self.verify] * self.evaluations]

    def settings(self) -> dict[str, Any]:
        purifier = self.robust.purifier
        return {
            "threat": str(self.threat),
            "radius": self.threat.radius,
            "steps": self.steps,
            "step_size": self.step_size,
            "replicas": self.replicas,
            "verify": self.verify,
            "evaluations": self.evaluations,
            "gradient": self.robust.gradient.name,
            "mode": repr(self.robust.gradient),
            "seed": self.seed,
            "langevin_steps": purifier.steps,
            "langevin_step_size": purifier.step_size,
            "langevin_clip": purifier.clip,
            **({} if purifier.seed is None else {"langevin_seed": purifier.seed}),
            **({} if self.robust.average == "logits" else {"average": self.robust.average}),
        }

    def advance(self, tally: Tally, origin: Tensor, stage: int) -> None:
        step = stage - 1
        if stage == 0:
            self._begin(tally, origin)
        elif step > self.steps:
            self._final_evaluation(tally, origin.device, step - self.steps - 1)
        elif len(tally.standing()):
            self._attack_step(tally, origin, step)

    def _begin(self, tally: Tally, origin: Tensor) -> None:
        """Natural predictions; those that are right start at random in the ball."""
        tally.natural = self._classify(tally, origin, tally.ids, "natural").argmax(1)
        for row in tally.standing().tolist():
            rng = generator(self.seed, f"{tally.ids[row]}/start", device=origin.device)
            tally.adversaries[row] = self.threat.start(origin[row], rng=rng).cpu()

    def _attack_step(self, tally: Tally, origin: Tensor, step: int) -> None:
        """c_j, its gradient, the verification if c_j is wrong, and the step from X_j to X_(j+1)."""
        rows = tally.standing()
        x, last = tally.adversaries[rows].to(origin.device), step == self.steps
        predicted, grad = self._evaluate_batch(tally, x, rows, step, climb=not last)
        tally.attacked[rows, step] = predicted
        doubtful = predicted != tally.labels[rows]
        if doubtful.any():
            ids = tally.ids[rows[doubtful]]
            again = self._classify(tally, x[doubtful], ids, f"verify {step}").argmax(1)
            tally.verified[rows[doubtful], step] = again
            broken = rows[doubtful][again != tally.labels[rows[doubtful]]]
            tally.broken_at[broken] = step
        if grad is not None:
            moved = self.threat.step(x, grad, origin[rows], size=self.step_size).cpu()
            unbroken = tally.broken_at[rows] == NONE  # a broken one keeps the image that broke it
            tally.adversaries[rows[unbroken]] = moved[unbroken]

    def _final_evaluation(self, tally: Tally, device: torch.device, evaluation: int) -> None:
        """One more evaluation of the last adversaries."""
        logits = self._classify(tally, tally.adversaries.to(device), tally.ids, f"final {evaluation}")
        tally.final[:, evaluation] = logits.argmax(1)
        tally.logits = tally.logits + logits if evaluation else logits

    def _classify(self, tally: Tally, x: Tensor, ids: Tensor, what: str) -> Tensor:
        """Logits of the larger draw; for known noise it is the attack's."""
        with torch.no_grad():
            logits = self.robust(x, replicas=self.verify, seeds=self._seeds(ids, what))
        tally.image_steps += len(x) * self.verify * self.robust.purifier.steps
        return _finite(logits, f"logits of the evaluation '{what}'").cpu()

    def _evaluate_batch(
        self, tally: Tally, x: Tensor, rows: Tensor, step: int, *, climb: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Predictions (n,) by the attack's replicas, and the gradients of their losses if `climb`."""
        at_once = max(1, self.robust.purifier.batch // self.replicas)  # the walked images of a gradient are kept
        found = [
            self._ascent(x[part], tally.labels[rows[part]], tally.ids[rows[part]], step, climb=climb)
            for part in torch.split(torch.arange(len(x)), at_once)
        ]
        walks = 1 + self.robust.gradient.walks * climb
        tally.image_steps += walks * len(x) * self.replicas * self.robust.purifier.steps
        tally.gradients += len(x) * climb
        grads = [grad for _, grad in found if grad is not None]
        return torch.cat([predicted for predicted, _ in found]), torch.cat(grads) if grads else None

    def _ascent(self, x: Tensor, y: Tensor, ids: Tensor, step: int, *, climb: bool) -> tuple[Tensor, Tensor | None]:
        robust, seeds = self.robust, self._seeds(ids, f"attack {step}")
        bare = isinstance(attacked_through(robust.gradient), Transfer)
        leaf = x.clone().requires_grad_(climb)
        logits = robust(leaf.detach() if bare else leaf, replicas=self.replicas, seeds=seeds)
        predicted = _finite(logits.detach(), f"logits at attack step {step}").argmax(1).cpu()
        if not climb:
            return predicted, None
        with frozen(robust.classifier, walking=False):
            attacked = robust.classifier(leaf) if bare else logits
            (grad,) = torch.autograd.grad(self.loss(attacked, y.to(x.device)).sum(), leaf)
        return predicted, _finite(grad, f"{robust.gradient.name} gradient at attack step {step}")

    def _seeds(self, ids: Tensor, what: str) -> list[int]:
        if self.robust.purifier.seed is not None:  # a defence whose noise is always the same
            return [self.robust.purifier.seed] * len(ids)
        name = "known" if self.robust.gradient.known_noise else what
        return [derive_seed(self.seed, f"{image}/{name}") for image in ids.tolist()]


def _finite(values: Tensor, what: str) -> Tensor:
    if not values.isfinite().all():
        raise Diverged(f"the {what} are not finite")
    return values
