"""Turns the options of `ebmlife attack` and the paper's presets into a plan."""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ebmlife import attacks
from ebmlife.attacks import AttackConfig, validation
from ebmlife.attacks.threat import Threat, length
from ebmlife.cli.parsing import counts, raw_weights
from ebmlife.defense.defended import AVERAGES
from ebmlife.defense.gradients import Fixed, Gradient, Smooth, find
from ebmlife.errors import BadInput
from ebmlife.recipes.schema import Part
from ebmlife.runs import locate
from ebmlife.runs.build import describe
from ebmlife.runs.evaluated import Images

AUTHORS_IMAGENET = "probabilities"  # what the paper's authors average for their ImageNet classifier
_IMAGENET = 1000  # classes
_IMAGES = 100  # attacked where neither --n nor a preset gives a number


@dataclass(frozen=True)
class Plan:
    """The attacks of one command: `config` with each gradient mode, on the defense with each number of steps."""

    config: AttackConfig
    modes: list[Gradient]
    langevin_steps: list[int | None]  # None: the sampling_steps of the recipe
    images: int | None


def plan(options: argparse.Namespace) -> Plan:
    preset = None if options.preset is None else attacks.preset(options.preset)
    if options.threat is None and preset is None:
        raise BadInput("attack needs --threat, such as linf:8/255, or --preset")

    def chosen(name: str, given: Any, default: Any) -> Any:
        return given if given is not None else default if preset is None else getattr(preset, name)

    config = AttackConfig(
        threat=chosen("threat", None if options.threat is None else Threat.parse(options.threat), None),
        steps=chosen("steps", options.steps, 50),
        replicas=chosen("replicas", options.replicas, 48),
        verify=chosen("verify", options.verify, 128),
        evaluations=options.evaluations,
        loss=options.loss,
        seed=options.seed,
        step_size=chosen("step_size", None if options.step_size is None else length(options.step_size), None),
    )
    k = chosen("langevin_steps", options.k, None)
    steps = [k] if options.sweep_k is None else sorted(set(counts(options.sweep_k, "--sweep-k")))
    return Plan(config, _modes(options), list(steps), chosen("images", options.n, None))


def _modes(options: argparse.Namespace) -> list[Gradient]:
    modes = [find(name) for name in options.gradient.split(",")]
    if options.beta is None:
        return modes
    modes = [_with_beta(mode, options.beta) for mode in modes]
    if not any(mode.name.endswith("smooth") for mode in modes):
        raise BadInput(f"--beta applies to smooth gradients only, and --gradient is {options.gradient}")
    return modes


def _with_beta(mode: Gradient, beta: float) -> Gradient:
    if isinstance(mode, Fixed):
        return Fixed(_with_beta(mode.mode, beta))
    return Smooth(beta) if isinstance(mode, Smooth) else mode


def average(options: argparse.Namespace, classifier: nn.Module, x: Tensor) -> str:
    """Returns what the defense averages. The authors average the output of their classifiers, which are logits for
    CIFAR-10 and probabilities for ImageNet."""
    if options.average is not None:
        return str(options.average)
    imagenet = options.as_authors and validation.classes(classifier, x) == _IMAGENET
    return AUTHORS_IMAGENET if imagenet else AVERAGES[0]


def default_folder(options: argparse.Namespace, config: AttackConfig, average: str) -> Path:
    """Returns RUN/attacks/NAME, where the report of a run looks for attacks."""
    classifier = Path(options.classifier.rpartition(":")[2]).name.removesuffix(".safetensors")
    name = f"{classifier}-{config.threat}"
    name += "" if average == AVERAGES[0] else f"-{average}"
    name += "-raw" if raw_weights(options) else ""
    return locate.own(options.folder) / "attacks" / re.sub(r"[^\w.]+", "-", name)


def labeled_images(chosen: Images, n: int | None) -> tuple[Tensor, Tensor]:
    """Returns n images, spread over the data, and their labels."""
    data = chosen.data
    if data.labels is None:
        raise BadInput("the data have no labels, and an attack needs classes; see --data.labels in docs/defense.md")
    if n is not None and not 1 <= n <= len(data):
        raise BadInput(f"--n {n}: there are {len(data)} test images")
    rows = chosen.spread(_IMAGES if n is None else n)
    return data.take(rows), data.labels[rows]


def check_classes(data: Part, classifier: nn.Module, x: Tensor) -> None:
    """Raises BadInput if the classifier has another number of classes than the data, where that is known."""
    classes, declared = validation.classes(classifier, x), describe(data).classes
    if declared is not None and classes != declared:
        raise BadInput(
            f"the classifier has {classes} classes, but {data.kind} has {declared}; "
            f"give a classifier that was trained on {data.kind}"
        )
