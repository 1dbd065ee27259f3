"""Exams of runs, and of any energy that a Python function returns, with their default settings."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from ebmlife.attacks import validation
from ebmlife.data import Dataset
from ebmlife.defense import classifiers
from ebmlife.errors import BadInput
from ebmlife.exam.config import NO_CLASSIFIER, TRAINING_START, ExamConfig
from ebmlife.exam.cycle import Exam
from ebmlife.exam.features import FEATURE_SETS, default_features, find_features
from ebmlife.exam.subject import Subject
from ebmlife.recipes.schema import Part
from ebmlife.runs import build, locate
from ebmlife.runs.evaluated import choose
from ebmlife.runs.model import Model
from ebmlife.runs.user_code import Trust, import_object, is_import_path
from ebmlife.sampling import fingerprint
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.rng import INITIAL_STATES, derive_seed, generator, normal
from ebmlife.storage import checkpoint
from ebmlife.training.recovery import LowestEnergy
from ebmlife.training.starts import FromData, FromGenerator, Start, Uniform

CHAINS = 64  # of a run
DEFAULT = ExamConfig()
STEP_SIZE = 1e-2  # of a function
_START_BATCH = 256  # start states that a generator makes at once, which bounds the memory
_RUN_SETTINGS = ("chains", "start", "raw", "evaluation_temperature", "conditional")  # a function decides these itself


def of_run(
    run: str | Path,
    config: ExamConfig = DEFAULT,
    *,
    update: int | None = None,
    data: Mapping[str, str] = MappingProxyType({}),
    split: str | None = None,
    folder: Path | None = None,
    device: str = "auto",
    trust_code: str | Iterable[str] | Trust = (),
    scope: str = "exam",
) -> Exam:
    """Returns the exam of a run's model. The recipe decides what `config` leaves open.

    The step size and clipping are the recipe's; chains start at the generator's samples if there is a generator, else
    at data; samples are compared with the training data, in features that fit them.

    Args:
        run: Folder of the run, `zoo:NAME` or `hf:user/model`.
        config: Settings of the exam.
        update: The checkpoint (default: the newest).
        data: Fields `data.*` that replace those of the recipe.
        split: Part of the data by name (default: what the model was trained on).
        folder: Folder of the results (default: `exam` in the run's folder).
        device: Device of the model.
        trust_code: Functions, as `package.module:function`, that the model and the classifier may call.
        scope: Name of the random streams that draw start states.
    """
    model = build.load(
        run,
        update=update,
        averaged=not config.raw,
        device=device,
        evaluation_temperature=config.evaluation_temperature,
        trust_code=trust_code,
    )
    recipe, images = model.recipe, choose(model, data, split, tests=False)
    rng = generator(config.seed, f"{scope} {INITIAL_STATES}", device=model.device)
    x0 = _start_states(model, images.data, CHAINS if config.chains is None else config.chains, config.start, rng)
    energy = _conditioned(model, x0, rng) if config.conditional else model.energy
    features, trace = find_features(default_features(config.features, recipe.data, model.shape), model.shape)
    newest = checkpoint.choose(locate.find(run, update=update), update)
    return Exam(
        Subject(
            energy,
            x0,
            data=images.data,
            data_noise=recipe.noise_learned,
            features=features,
            trace=trace,
            classifier=_classifier(config.classifier, recipe.data.kind, x0, Trust.of(trust_code)),
            clip=recipe.langevin.clip,
        ),
        _completed(config, x0, recipe.langevin.step_size),
        folder=locate.own(run) / "exam" if folder is None else folder,
        identity={"recipe_hash": recipe.hash, "update": newest, "energy": fingerprint.of_functions(energy)},
        evaluated_on=images.about,
        unseen=cache(lambda: images.data if images.about["trained_on"] is False else _test_data(recipe.data)),
    )


def of_function(
    target: str,
    config: ExamConfig = DEFAULT,
    *,
    folder: Path,
    trust_code: str | Iterable[str] | Trust = (),
) -> Exam:
    """Returns the exam of an energy that a function of the user returns.

    The function takes no arguments and returns an energy (or an object with a `gradient`), start states, and optionally
    the data that samples are compared with. It is called with torch's random seed set, so that an exam that is resumed
    has the same start.

    Args:
        target: The function as `package.module:function`.
        config: Settings of the exam; those that the function decides itself must be left at their defaults.
        folder: Folder of the results.
        trust_code: Functions, as `package.module:function`, that the classifier may call.
    """
    for name in _RUN_SETTINGS:
        if getattr(config, name) != getattr(DEFAULT, name):
            option = f"--{name.replace('_', '-')}"
            raise BadInput(f"{option} is only for runs; {target} returns the energy and the start states itself")
    energy, x0, data = _call(target, config.seed)
    features, trace = find_features(config.features or "moments", tuple(x0.shape[1:]))
    classifier = _classifier(config.classifier, "", x0, Trust.of(trust_code))
    identity = {"target": target, "energy": fingerprint.of_functions(energy), "states": fingerprint.of_tensors(x0)}
    identity |= {"data": fingerprint.of_tensors(data)} if isinstance(data, Tensor) else {}
    subject = Subject(energy, x0, data, features=features, trace=trace, classifier=classifier)
    return Exam(subject, _completed(config, x0, STEP_SIZE), folder, identity)


def is_function(target: str) -> bool:
    """Returns whether a target is package.module:function and not the folder of a run."""
    return is_import_path(target) and not target.startswith(("zoo:", "hf:"))


def _call(target: str, seed: int) -> tuple[Any, Tensor, Any]:
    """Returns (energy, start states, data or None) from the user's function."""
    function = import_object(target)
    if not 0 <= seed < 2**63:
        raise BadInput(f"--seed must be at least 0 and below 2**63, got {seed}")
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(seed, "exam function"))
        try:
            returned = function()
        except Exception as error:
            raise BadInput(f"{target} failed with {type(error).__name__}: {error}; --debug shows where") from error
    if not isinstance(returned, tuple) or len(returned) not in (2, 3) or not isinstance(returned[1], Tensor):
        raise BadInput(f"{target} must return an energy and a tensor of start states, and optionally data")
    energy, x0, *rest = returned
    if not callable(energy) and not hasattr(energy, "gradient"):
        raise BadInput(
            f"{target} returned a {type(energy).__name__} as its energy; expected a callable or an object with a "
            "`gradient`"
        )
    data = rest[0] if rest else None
    if not isinstance(data, Tensor | None) and not hasattr(data, "labels"):
        raise BadInput(
            f"{target} returned a {type(data).__name__} as its data; expected a tensor (N, ...) or a data set"
        )
    return energy, x0, data


def _completed(config: ExamConfig, x0: Tensor, step_size: float) -> ExamConfig:
    """Returns the settings with the number of chains and the step size filled in."""
    chosen = step_size if config.step_size is None else config.step_size
    return replace(config, chains=len(x0), step_size=chosen)


def _start_states(model: Model, data: Dataset, chains: int, start: str | None, rng: torch.Generator) -> Tensor:
    if start == TRAINING_START:
        return model.start(chains, rng=rng).x
    draw = _start(start or ("data" if model.generator is None else "generator"), model, data)
    return torch.cat([draw(min(_START_BATCH, chains - first), rng=rng).x for first in range(0, chains, _START_BATCH)])


def _start(kind: str, model: Model, data: Dataset) -> Start:
    if kind == "generator":
        if model.generator is None:
            raise BadInput("--start generator: this model has no generator; use data or noise")
        return FromGenerator(model.generator)
    return FromData(data) if kind == "data" else Uniform(model.shape)


def _conditioned(model: Model, x0: Tensor, rng: torch.Generator) -> Energy:
    if not isinstance(model.energy, LowestEnergy):
        raise BadInput(
            f"--conditional is only for models of recovery likelihood; {model.recipe.name} has an unconditional energy"
        )
    return model.energy.given(model.energy.noisier(x0, noise=normal(rng)))


def _classifier(name: str | None, data_kind: str, x: Tensor, trust: Trust) -> Callable[[Tensor], Tensor] | None:
    """Returns the classifier of that name, tried on states like x, or the default for such data."""
    if name == NO_CLASSIFIER:
        return None
    if name is None:
        small = FEATURE_SETS[data_kind].classifier if data_kind in FEATURE_SETS else None
        return None if small is None else (lambda x: small()(x.cpu()))
    found = classifiers.find(name, trust=trust).to(x.device)
    validation.classes(found, x)
    return found


def _test_data(trained: Part) -> Dataset | None:
    data, seen = build.test_part(trained)
    return None if seen else data
