"""`ebmlife attack`."""

import argparse
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ebmlife import attacks
from ebmlife.attacks import pgd, validation
from ebmlife.attacks.threat import Threat, length
from ebmlife.cli import images
from ebmlife.cli.defending import add_model_options, load_model, make_purifier
from ebmlife.cli.parsing import Command, add_weights_options, counts, raw_weights
from ebmlife.defense import classifiers
from ebmlife.defense.gradients import Fixed, Gradient, Smooth, Transfer, attacked_through, find
from ebmlife.defense.purifier import AVERAGES, DefendedClassifier
from ebmlife.distributed import Ranks
from ebmlife.errors import BadInput, shown
from ebmlife.plots import pictures
from ebmlife.runs import locate
from ebmlife.runs.evaluated import Images
from ebmlife.runs.progress import ProgressDisplay
from ebmlife.sampling.rng import derive_seed
from ebmlife.storage.atomic import atomic_write

UNDEFENDED = "undefended"
AUTHORS_IMAGENET = "probabilities"  # what the paper's authors average of their classifier of ImageNet
_IMAGENET = 1000  # classes
_SHOWN = 10  # images in pictures
_CLASSES = {"digits": 10, "cifar10": 10}  # kinds of data of which all classes are known


def register(command: Command) -> None:
    attack = command("attack", _attack, "attack a classifier that a run's energy defends", fields="data", shared=True)
    attack.add_argument("folder", type=Path, metavar="RUN")
    attack.add_argument("--classifier", required=True, help="its name, such as timm:NAME or package.module:function")
    attack.add_argument("--threat", help="norm and radius in pixels of [0, 1]: linf:8/255 or l2:0.5")
    attack.add_argument("--preset", help=f"the paper's settings: {', '.join(attacks.PRESETS)}")
    attack.add_argument("--gradient", default="bpda", help="with commas between: bpda,full,smooth,transfer,fixed")
    attack.add_argument("--steps", type=int, help="of the attack (default: 50)")
    attack.add_argument("--step-size", help="of the attack, as a radius (default: a quarter of the radius)")
    attack.add_argument("--replicas", type=int, help="chains of each image in a gradient (default: 48)")
    attack.add_argument("--verify", type=int, help="chains of each image when a break is verified (default: 128)")
    attack.add_argument("--evaluations", type=int, default=5, help="of the last adversaries (default: %(default)s)")
    attack.add_argument("--loss", default="cross-entropy", help=f"{', '.join(attacks.LOSSES)} (default: %(default)s)")
    attack.add_argument("--beta", type=float, help=f"of softplus, in smooth gradients (default: {Smooth().beta:g})")
    attack.add_argument("--n", type=int, help="test images (default: 100, or as the preset says)")
    attack.add_argument("--k", type=int, help="Langevin steps of the defence; default: the recipe's sampling_steps")
    attack.add_argument("--sweep-k", help="several: 0,50,100; accuracy against them is plotted")
    attack.add_argument("--masking", action="store_true", help="check whether the gradients are masked")
    attack.add_argument(
        "--out", type=Path, help="default: in RUN/attacks, by classifier and threat; a killed attack goes on there"
    )
    attack.add_argument("--batch", type=int, default=256, help="chains that walk at once (default: %(default)s)")
    attack.add_argument(
        "--average", choices=AVERAGES, help="what is averaged over the chains of an image (default: logits)"
    )
    attack.add_argument("--on-training-data", action="store_true", help="attack images that the run was trained on")
    images.declare(attack, default="test, where the data have one")
    add_model_options(attack)
    add_weights_options(attack, also=f", and of classifiers of ImageNet --average {AUTHORS_IMAGENET}")


@dataclass(frozen=True)
class _Plan:
    """What the options and the preset come to."""

    attack: dict[str, Any]  # of attacks.evaluate
    modes: list[Gradient]
    ks: list[int | None]
    walk: dict[str, Any]  # of the purifier
    n: int | None


def _plan(options: argparse.Namespace) -> _Plan:
    preset = None if options.preset is None else attacks.preset(options.preset)
    if options.threat is None and preset is None:
        raise BadInput("attack needs --threat, such as linf:8/255, or --preset")

    def chosen(name: str, given: Any, default: Any) -> Any:
        return given if given is not None else default if preset is None else getattr(preset, name)

    attack = {
        "threat": chosen("threat", None if options.threat is None else Threat.parse(options.threat), None),
        "steps": chosen("steps", options.steps, 50),
        "replicas": chosen("replicas", options.replicas, 48),
        "verify": chosen("verify", options.verify, 128),
        "evaluations": options.evaluations,
        "loss": options.loss,
        "seed": options.seed,
        "step_size": chosen("step_size", None if options.step_size is None else length(options.step_size), None),
    }
    attacks.losses.find(options.loss)
    modes = [find(name) for name in options.gradient.split(",")]
    if options.beta is not None:
        modes = [_softened(mode, options.beta) for mode in modes]
        if not any(mode.name.endswith("smooth") for mode in modes):
            raise BadInput(f"--beta is of smooth gradients, and --gradient is {options.gradient}")
    k = chosen("langevin_steps", options.k, None)
    ks = [k] if options.sweep_k is None else sorted(set(counts(options.sweep_k, "--sweep-k")))
    n = options.n if options.n is not None or preset is None else preset.images
    return _Plan(attack, modes, ks, {"batch": options.batch}, n)


def _softened(mode: Gradient, beta: float) -> Gradient:
    if isinstance(mode, Fixed):
        return Fixed(_softened(mode.mode, beta))
    return Smooth(beta) if isinstance(mode, Smooth) else mode


def _attack(options: argparse.Namespace, changes: dict[str, str]) -> int:
    ranks: Ranks = options.ranks
    with ranks.raise_on_all(), ranks.rank0_first():
        plan, model = _plan(options), load_model(options, averaged=not raw_weights(options))
        classifier = classifiers.find(options.classifier, trust=options.trust).to(model.device)
        chosen = images.find(model, options, changes, tests=True)
        x, y = (values.to(model.device) for values in _test_images(chosen, plan.n))
        noted = images.refuse_training_images(chosen, len(x), options)
        plan.attack["evaluated_on"] = chosen.about
        _check_classes(chosen.part.kind, classifier, x)
        average = _average(options, classifier, x)
        out = options.out or _folder(options, plan, average)
        defences = {
            f"{mode.name}-k{purifier.steps}": DefendedClassifier(classifier, purifier, gradient=mode, average=average)
            for purifier in (make_purifier(model, k, **plan.walk) for k in plan.ks)
            for mode in plan.modes
        }
        attacked: dict[str, nn.Module] = {UNDEFENDED: classifier, **defences}
        settings = {  # of all of them before hours go into the first
            name: pgd.settings(model, x, y, folder=out / name, **plan.attack) for name, model in attacked.items()
        }
        _earlier(out, settings)
        suspect = _suspect(defences)
        if options.masking:
            validation.masking(defences[suspect], x)
    for line in (*attacks.record.notes(settings.values()), *([noted] if noted else [])) if ranks.first else ():
        print(line)
    evaluate = partial(_watched, x=x, y=y, plan=plan, out=out, ranks=ranks)
    try:
        records = {name: evaluate(name, model) for name, model in attacked.items()}
        if options.masking:
            _check_masking(suspect, defences[suspect], x, y, plan, out, ranks)
    except KeyboardInterrupt:
        if ranks.first:
            print(f"stopped; the same command goes on where it was, in {shown(out)}")
        raise
    if ranks.first:
        records |= _earlier(out, settings)
        _report(records, out)
        _draw(records, out)
        longest = _longest(defences)
        _show(records[longest], defences[longest], x, seed=options.seed, out=out, name=longest)
        print(f"attacked: {len(x)} of {shown(chosen)}")
        print(f"records and plots: {shown(out)}")
    return 0


def _longest(defences: Mapping[str, DefendedClassifier]) -> str:
    """The first of them, if there are several."""
    return max(defences, key=lambda name: defences[name].purifier.steps)


def _suspect(defences: Mapping[str, DefendedClassifier]) -> str:
    """The longest whose attacker knows the defence, which is what gradients can be masked from."""
    aware = {
        name: robust for name, robust in defences.items() if not isinstance(attacked_through(robust.gradient), Transfer)
    }
    return _longest(aware or defences)


def _earlier(out: Path, settings: Mapping[str, dict[str, Any]]) -> dict[str, attacks.Record]:
    """Records of earlier commands; BadInput where one is of another energy, or of other images, and so on."""
    now = list(settings.values())[-1]  # of a defence
    found = {place.parent.name: attacks.Record.load(place) for place in sorted(out.glob("*/record"))}
    earlier = {name: record for name, record in found.items() if name not in settings}
    for name, record in earlier.items():
        said = attacks.record.apart(record.settings, now)
        if said:
            raise BadInput(f"{out / name} holds an attack that is not comparable ({said}); choose another --out")
    return earlier


def _average(options: argparse.Namespace, classifier: nn.Module, x: Tensor) -> str:
    """The authors' classifier of CIFAR-10 gives logits, that of ImageNet probabilities: they average what they have."""
    if options.average is not None:
        return str(options.average)
    of_imagenet = options.as_authors and validation.classes(classifier, x) == _IMAGENET
    return AUTHORS_IMAGENET if of_imagenet else AVERAGES[0]


def _folder(options: argparse.Namespace, plan: _Plan, average: str) -> Path:
    """RUN/attacks/NAME: where the page of a run looks for attacks."""
    classifier = Path(options.classifier.rpartition(":")[2]).name.removesuffix(".safetensors")
    name = f"{classifier}-{plan.attack['threat']}"
    name += "" if average == AVERAGES[0] else f"-{average}"
    name += "-raw" if raw_weights(options) else ""
    return locate.own(options.folder) / "attacks" / re.sub(r"[^\w.]+", "-", name)


def _test_images(chosen: Images, n: int | None) -> tuple[Tensor, Tensor]:
    data = chosen.data
    if data.labels is None:
        raise BadInput("the data have no labels, and an attack needs classes; see --data.labels in docs/defense.md")
    if n is not None and not 1 <= n <= len(data):
        raise BadInput(f"--n {n}: there are {len(data)} test images")
    rows = chosen.spread(100 if n is None else n)
    return data.take(rows), data.labels[rows]


def _check_classes(data: str, classifier: nn.Module, x: Tensor) -> None:
    """A label means the same to the data and to a classifier of as many classes, as far as can be known."""
    classes = validation.classes(classifier, x)
    if classes != _CLASSES.get(data, classes):
        raise BadInput(
            f"the classifier has {classes} classes, and {data} has {_CLASSES[data]}; give one that learned {data}"
        )


def _watched(
    name: str, model: nn.Module, *, x: Tensor, y: Tensor, plan: _Plan, out: Path, ranks: Ranks
) -> attacks.Record:
    with ProgressDisplay(name, quiet=not ranks.first) as display:
        watch = partial(_advance, display)
        return attacks.evaluate(model, x, y, folder=out / name, watch=watch, ranks=ranks, **plan.attack)


def _advance(display: ProgressDisplay, progress: attacks.Progress) -> None:
    display.advance(progress.done, 1.0, f"{progress.standing.right} of {progress.standing.of} stand")


def _check_masking(
    name: str, robust: DefendedClassifier, x: Tensor, y: Tensor, plan: _Plan, out: Path, ranks: Ranks
) -> None:
    with ProgressDisplay("masking", quiet=not ranks.first) as display:
        found = attacks.check_masking(
            robust,
            x,
            y,
            folder=attacks.masking.place(out, name),
            attacked=out / name,
            watch=partial(_advance, display),
            ranks=ranks,
            **plan.attack,
        )
    with ranks.raise_on_all():
        if ranks.first:
            attacks.masking.keep(out, name, found)


def _report(records: dict[str, attacks.Record], out: Path) -> None:
    text = "\n\n".join([attacks.table(records), *attacks.masking.kept(out).values()])
    print(text)
    for file, content in (
        (out / "table.txt", text + "\n"),
        (out / "summary.json", json.dumps({name: record.summary() for name, record in records.items()}, indent=2)),
    ):
        with atomic_write(file) as unfinished:
            unfinished.write_text(content)


def _draw(records: dict[str, attacks.Record], out: Path) -> None:
    pictures.save(out / "steps.png", attacks.plot_steps(records))
    sweep = attacks.plot_langevin_steps([record for name, record in records.items() if name != UNDEFENDED])
    if sweep is not None:
        pictures.save(out / "sweep.png", sweep)


def _show(record: attacks.Record, robust: DefendedClassifier, x: Tensor, *, seed: int, out: Path, name: str) -> None:
    """Some images on their way through the attack and the defence. Found again, they stay: they belong to the record,
    and a walk anew may differ in its last bits."""
    seeds = [derive_seed(seed, f"picture {i}") for i in range(min(_SHOWN, len(x)))]
    file = out / name / "examples.safetensors"
    if file.is_file():
        examples = attacks.Examples.load(file)
    else:
        examples = attacks.Examples.of(record, robust, x, seeds=seeds)
        examples.save(file)
    pictures.save(out / "images.png", pictures.grid(examples.rows, columns=len(seeds)))
