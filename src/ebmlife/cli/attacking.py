"""`ebmlife attack`."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ebmlife import attacks
from ebmlife.attacks import Attack, AttackConfig, masking, validation
from ebmlife.attacks.record import notes
from ebmlife.cli import attack_plan, attack_results, images
from ebmlife.cli.attack_results import UNDEFENDED
from ebmlife.cli.defending import add_model_options, load_model
from ebmlife.cli.parsing import Command, add_weights_options, raw_weights
from ebmlife.defense import classifiers
from ebmlife.defense.defended import AVERAGES, DefendedClassifier
from ebmlife.defense.gradients import MODES, Smooth, Transfer, attacked_through
from ebmlife.distributed import Ranks
from ebmlife.errors import shown
from ebmlife.runs.evaluated import Images
from ebmlife.runs.progress import ProgressDisplay


def register(command: Command) -> None:
    about = "attack a classifier that the energy of a run defends"
    attack = command("attack", _attack, about, fields="data", shared=True)
    attack.add_argument("folder", type=Path, metavar="RUN", help="The run whose energy defends the classifier.")
    attack.add_argument(
        "--classifier", required=True, metavar="NAME", help=f"The classifier, one of: {classifiers.FORMS}."
    )
    attack.add_argument("--threat", help="Norm and radius, in pixels of [0, 1], such as linf:8/255 or l2:0.5.")
    attack.add_argument("--preset", help=f"Use the settings of an attack in the paper: {', '.join(attacks.PRESETS)}.")
    attack.add_argument(
        "--gradient",
        default="bpda",
        metavar="MODES",
        help=f"How gradients pass the defense, separated by commas: {', '.join(MODES)} (default: %(default)s).",
    )
    attack.add_argument("--steps", type=int, help="Number of attack steps (default: 50).")
    attack.add_argument("--step-size", help="Length of an attack step, such as 2/255 (default: radius / 4).")
    attack.add_argument(
        "--replicas", type=int, help="Number of chains per image that a gradient averages (default: 48)."
    )
    attack.add_argument(
        "--verify", type=int, help="Number of chains per image that verify a successful attack (default: 128)."
    )
    attack.add_argument(
        "--evaluations",
        type=int,
        default=5,
        help="Number of final evaluations of the adversarial images (default: %(default)s).",
    )
    attack.add_argument(
        "--loss", default="cross-entropy", help=f"The attack loss: {', '.join(attacks.LOSSES)} (default: %(default)s)."
    )
    attack.add_argument(
        "--beta", type=float, help=f"The beta of softplus in smooth gradients (default: {Smooth().beta:g})."
    )
    attack.add_argument("--n", type=int, help="Number of images to attack (default: 100, or that of the preset).")
    attack.add_argument(
        "--k", type=int, help="Number of Langevin steps of the defense (default: the sampling_steps of the recipe)."
    )
    attack.add_argument(
        "--sweep-k",
        metavar="K,K,...",
        help="Attack and plot defenses with several numbers of Langevin steps, such as 0,50,100.",
    )
    attack.add_argument("--masking", action="store_true", help="Check whether the gradients are masked.")
    attack.add_argument(
        "--out",
        type=Path,
        help="Folder of the results (default: in RUN/attacks). The same command resumes an attack that was stopped.",
    )
    attack.add_argument(
        "--batch", type=int, default=256, help="Number of chains that are walked together (default: %(default)s)."
    )
    attack.add_argument(
        "--average", choices=AVERAGES, help="What the defense averages over the chains of an image (default: logits)."
    )
    attack.add_argument("--on-training-data", action="store_true", help="Allow images that the run was trained on.")
    images.declare(attack, default="test, where the data have one")
    add_model_options(attack)
    add_weights_options(attack, also=f", and for ImageNet classifiers --average {attack_plan.AUTHORS_IMAGENET}")


@dataclass(frozen=True)
class _Prepared:
    """Everything that a command attacks, checked before the first attack begins."""

    chosen: Images
    x: Tensor
    y: Tensor
    config: AttackConfig
    defenses: dict[str, DefendedClassifier]
    attacks: dict[str, Attack]  # on the bare classifier and on the defenses, by the name of their folder
    out: Path
    notes: list[str]

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        return {name: attack.settings for name, attack in self.attacks.items()}

    @property
    def longest(self) -> str:
        """The name of the first defense with the most Langevin steps."""
        return _longest(self.defenses)

    @property
    def checked(self) -> str:
        """The defense whose gradient is checked for masking: the longest one whose attacker knows the defense."""
        aware = {
            name: robust
            for name, robust in self.defenses.items()
            if not isinstance(attacked_through(robust.gradient), Transfer)
        }
        return _longest(aware or self.defenses)


def _longest(defenses: Mapping[str, DefendedClassifier]) -> str:
    return max(defenses, key=lambda name: defenses[name].purifier.steps)


def _attack(options: argparse.Namespace, changes: dict[str, str]) -> int:
    ranks: Ranks = options.ranks
    with ranks.raise_on_all(), ranks.rank0_first():
        prepared = _prepare(options, changes)
    for line in prepared.notes if ranks.first else ():
        print(line)
    try:
        records = {name: _run(name, attack, ranks) for name, attack in prepared.attacks.items()}
        if options.masking:
            _check_masking(prepared, ranks)
    except KeyboardInterrupt:
        if ranks.first:
            print(f"stopped; the same command resumes the attack in {shown(prepared.out)}")
        raise
    if ranks.first:
        _show(prepared, records, seed=options.seed)
    return 0


def _prepare(options: argparse.Namespace, changes: dict[str, str]) -> _Prepared:
    plan, model = attack_plan.plan(options), load_model(options, averaged=not raw_weights(options))
    classifier = classifiers.find(options.classifier, trust=options.trust).to(model.device)
    chosen = images.find(model, options, changes, tests=True)
    x, y = (values.to(model.device) for values in attack_plan.labeled_images(chosen, plan.images))
    training_note = images.refuse_training_images(chosen, len(x), options)
    attack_plan.check_classes(chosen.part, classifier, x)
    average = attack_plan.average(options, classifier, x)
    out = options.out or attack_plan.default_folder(options, plan.config, average)
    defenses = {
        f"{mode.name}-k{purifier.steps}": DefendedClassifier(classifier, purifier, gradient=mode, average=average)
        for purifier in (model.purifier(steps, batch=options.batch) for steps in plan.langevin_steps)
        for mode in plan.modes
    }
    models: dict[str, nn.Module] = {UNDEFENDED: classifier, **defenses}
    ready = {
        name: Attack(attacked, x, y, plan.config, folder=out / name, evaluated_on=chosen.about)
        for name, attacked in models.items()
    }
    found = [*notes(attack.settings for attack in ready.values()), *([training_note] if training_note else [])]
    prepared = _Prepared(chosen, x, y, plan.config, defenses, ready, out, found)
    attack_results.earlier_records(out, prepared.settings)
    if options.masking:
        validation.masking(defenses[prepared.checked], x)
    return prepared


def _run(name: str, attack: Attack, ranks: Ranks) -> attacks.Record:
    with ProgressDisplay(name, quiet=not ranks.first) as display:
        return attack.run(watch=partial(_advance, display), ranks=ranks)


def _advance(display: ProgressDisplay, progress: attacks.Progress) -> None:
    display.advance(progress.done, 1.0, f"{progress.unbroken.right} of {progress.unbroken.of} images unbroken")


def _check_masking(prepared: _Prepared, ranks: Ranks) -> None:
    name, out = prepared.checked, prepared.out
    with ProgressDisplay("masking", quiet=not ranks.first) as display:
        checks = attacks.check_masking(
            prepared.defenses[name],
            prepared.x,
            prepared.y,
            config=prepared.config,
            folder=masking.place(out, name),
            attacked=out / name,
            evaluated_on=prepared.chosen.about,
            watch=partial(_advance, display),
            ranks=ranks,
        )
    with ranks.raise_on_all():
        if ranks.first:
            masking.save(out, name, checks)


def _show(prepared: _Prepared, records: dict[str, attacks.Record], *, seed: int) -> None:
    out, name = prepared.out, prepared.longest
    records = records | attack_results.earlier_records(out, prepared.settings)
    attack_results.write_table(records, out)
    attack_results.write_plots(records, out)
    attack_results.write_examples(records[name], prepared.defenses[name], prepared.x, seed=seed, folder=out / name)
    print(f"attacked: {len(prepared.x)} of {shown(prepared.chosen)}")
    print(f"records and plots: {shown(out)}")
