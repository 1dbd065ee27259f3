"""An attack on one model at given images. It is validated on creation and can be resumed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ebmlife.attacks import validation
from ebmlife.attacks.config import AttackConfig
from ebmlife.attacks.losses import Loss
from ebmlife.attacks.protocol import Evaluation
from ebmlife.attacks.record import EVALUATED_ON, Record
from ebmlife.attacks.tally import Meter, Tally, Watcher
from ebmlife.attacks.threat import Threat
from ebmlife.attacks.workspace import Storage, held, refuse_another
from ebmlife.defense.defended import DefendedClassifier, undefended
from ebmlife.distributed import SINGLE_PROCESS, Ranks


def evaluate(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    threat: Threat | str,
    steps: int = 50,
    step_size: float | None = None,
    replicas: int | None = None,
    verify: int = 128,
    evaluations: int = 5,
    loss: str | Loss = "cross-entropy",
    seed: int = 0,
    ids: Sequence[int] | None = None,
    group: int | None = None,
    method: str = "pgd",
    folder: Path | str | None = None,
    evaluated_on: Mapping[str, Any] | None = None,
    save_every: float = 10.0,
    watch: Watcher = lambda progress: None,
    ranks: Ranks = SINGLE_PROCESS,
) -> Record:
    """Attacks a classifier and returns the record of the attack. For a ready `AttackConfig`, use `Attack`.

    Each random draw is named by the seed, the image and its purpose, so the result for an image does not depend on the
    other images. Several ranks share the images, and all of them return the record that one process would return.

    Args:
        model: A DefendedClassifier, or any classifier: it is attacked without a defense.
        x: Images (B, C, H, W) in [-1, 1].
        y: Labels (B,).
        threat: The perturbations that the attacker may choose, or their text, such as "linf:8/255".
        steps: Number of attack steps (N in the paper).
        step_size: Length of an attack step in pixels of [0, 1] (alpha in the paper). None: a quarter of the radius.
        replicas: Purifications that each prediction of the attack averages (H_adv). None: the model's own number.
        verify: Purifications that a verification or a final evaluation averages (H_def).
        evaluations: Number of final evaluations of the last adversaries.
        loss: What the attack maximizes: a name in `LOSSES`, or a function of logits (B, classes) and labels (B,).
        seed: Seed of every random draw of the attack.
        ids: A number for each image that names its random draws. None: 0, 1, 2, ...
        group: Number of images that are attacked together. It changes no result. None: as many as fill three batches
            of the purifier.
        method: The optimizer that proposes the next adversary: a name in `OPTIMIZERS`.
        folder: Where the attack is saved. The same call resumes an attack that was killed, and loads a finished one.
        evaluated_on: A description of where the images come from, for the record.
        save_every: Seconds between two saves in `folder`.
        watch: Called with a `Progress` after each stage. Each rank reports its own images.
        ranks: The processes that share the work.

    Returns:
        The record: all predictions, the adversaries, and the accuracies that follow from them.

    Raises:
        BadInput: The arguments do not fit each other, or `folder` holds another attack.
        Diverged: A logit or a gradient is not finite.
    """
    config = AttackConfig(
        threat=Threat.of(threat),
        steps=steps,
        step_size=step_size,
        replicas=replicas,
        verify=verify,
        evaluations=evaluations,
        loss=loss,
        seed=seed,
        group=group,
        method=method,
    )
    attack = Attack(model, x, y, config, ids=ids, folder=folder, evaluated_on=evaluated_on)
    return attack.run(save_every=save_every, watch=watch, ranks=ranks)


class Attack:
    """An attack that is ready to run: all checks are made here, before the first step, and nothing is written yet.

    Args:
        model: A DefendedClassifier, or any classifier: it is attacked without a defense.
        x: Images (B, C, H, W) in [-1, 1].
        y: Labels (B,).
        config: The settings of the attack.
        ids: A number for each image that names its random draws. None: 0, 1, 2, ...
        folder: Where the attack is saved.
        evaluated_on: A description of where the images come from, for the record.

    Attributes:
        settings: What identifies the attack in its folder and describes it in its record.

    Raises:
        BadInput: The model, the images and the configuration do not fit, or `folder` holds another attack.
    """

    def __init__(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        config: AttackConfig,
        *,
        ids: Sequence[int] | None = None,
        folder: Path | str | None = None,
        evaluated_on: Mapping[str, Any] | None = None,
    ) -> None:
        robust = model if isinstance(model, DefendedClassifier) else undefended(model)
        ids = range(len(x)) if ids is None else ids
        config = config.for_defense(robust)
        validation.attack(robust, x, y, ids, config)
        self._x, self._y, self._ids, self._folder = x, y.long(), ids, folder
        if folder is not None:
            validation.require_lasting_names(config.loss, robust.gradient)
        before = held(folder)
        if config.group is None:  # a resumed attack keeps its groups, even if the batch is different now
            default = max(1, 3 * robust.purifier.batch // (config.replicas or robust.replicas))
            config = replace(config, group=before.get("group", default))
        self._evaluation = Evaluation(robust, config)
        self.settings = config.settings() | _described(robust) | validation.fingerprints(robust, x, self._y, ids)
        if evaluated_on is not None:
            self.settings[EVALUATED_ON] = dict(evaluated_on)
        note = validation.notes(robust, x)  # a folder keeps its own note: earlier versions saved none, or other words
        self.settings |= {name: before[name] for name in note if name in before} if before else note
        if before and robust.gradient.known_noise:
            self.settings["verify"] = before.get("verify")  # the first versions saved a number that was never used
        refuse_another(folder, self.settings)

    def run(
        self,
        *,
        save_every: float = 10.0,
        watch: Watcher = lambda progress: None,
        ranks: Ranks = SINGLE_PROCESS,
    ) -> Record:
        """Runs the attack, resumes it, or loads its record if it is finished; see `evaluate`."""
        storage = Storage(self._folder, self.settings, every=save_every)
        with storage.opened(ranks) as found:
            if found is not None:
                return found
            record = Record(storage.settings, self._attack_all(storage, watch, ranks))
            with ranks.raise_on_all():
                if ranks.first:
                    storage.finish(record)
        return record

    def _attack_all(self, storage: Storage, watch: Watcher, ranks: Ranks) -> Tally:
        """Returns the tally of all images, including those of other ranks."""
        evaluation, group = self._evaluation, self.settings["group"]
        rows_of_groups = list(enumerate(torch.split(torch.arange(len(self._x)), group)))
        mine = rows_of_groups[ranks.part(-(-len(self._x) // group))]
        images = sum(len(rows) for _, rows in mine)
        meter = Meter(images, walks=evaluation.walks, first_final=evaluation.first_final, watch=watch)
        with ranks.raise_on_all(unevenly=True):  # ranks whose images break soon are done early
            tallies = [self._attack_group(index, rows, storage, meter) for index, rows in mine]
        return Tally.gathered(tallies, ranks)

    def _attack_group(self, index: int, rows: Tensor, storage: Storage, meter: Meter) -> Tally:
        """Runs all stages of a group, or the remaining ones if the group was saved."""
        evaluation, images = self._evaluation, self._x[rows]
        labels, ids = self._y[rows].cpu(), torch.tensor(self._ids)[rows]
        config = evaluation.config
        blank = Tally.blank(ids, labels, images.cpu(), steps=config.steps, evaluations=config.evaluations)
        tally, stage = storage.part(index, blank, stages=evaluation.stages)
        meter.enter(tally, stage)
        while stage < evaluation.stages:
            evaluation.advance(tally, images, stage)
            stage += 1
            storage.keep(index, tally, stage, last=stage == evaluation.stages)
            meter.show(tally, stage)
        meter.leave(tally)
        return tally


def _described(robust: DefendedClassifier) -> dict[str, Any]:
    """Returns the settings of the defense."""
    purifier = robust.purifier
    return {
        "gradient": robust.gradient.name,
        "mode": repr(robust.gradient),
        "langevin_steps": purifier.steps,
        "langevin_step_size": purifier.step_size,
        "langevin_clip": purifier.clip,
        **({} if purifier.seed is None else {"langevin_seed": purifier.seed}),
        **({} if robust.average == "logits" else {"average": robust.average}),
    }
