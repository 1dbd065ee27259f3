"""Who sits an exam: the model of a run, or whatever energy a function of the user's returns."""

import importlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor

from ebmlife import build, checkpoint, places
from ebmlife.data import Dataset
from ebmlife.energy import Energy
from ebmlife.errors import BadInput, nearest
from ebmlife.exam.digits import digits_classifier
from ebmlife.exam.inception import inception
from ebmlife.exam.life_cycle import Slope
from ebmlife.exam.reference import PLAIN, Features
from ebmlife.model import Model
from ebmlife.randomness import generator
from ebmlife.recipe import Part
from ebmlife.starts import FromData, FromGenerator, Start, Uniform

_FUNCTION = re.compile(r"(?!zoo:|hf:)[\w.]+:\w+")
STARTS = ("data", "noise", "generator")


@dataclass(frozen=True)
class Subject:
    energy: Energy | Slope
    x0: Tensor
    identity: dict[str, Any]  # an exam that was begun goes on with no other
    step_size: float = 1e-2
    clip: float | None = None
    data: Dataset | Tensor | None = None
    unseen: Callable[[], Dataset | None] = lambda: None  # data like these that the model was not trained on
    data_noise: float = 0.0
    features: Features = PLAIN
    traced: Features | None = None
    classifier: Callable[[Tensor], Tensor] | None = None


def is_function(target: str) -> bool:
    """Whether a target is package.module:function and not the folder of a run."""
    return _FUNCTION.fullmatch(target) is not None


def given(target: str) -> Subject:
    """What package.module:function() returns: an energy (or an object with a `gradient`), start states, and, where
    samples are to be compared with more than those, data."""
    place, _, name = target.partition(":")
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` has it; a console script has not
    try:
        module = importlib.import_module(place)
    except ImportError as error:
        raise BadInput(f"{target}: {place} cannot be imported: {error}") from error
    finally:
        sys.path.pop(0)
    if not callable(getattr(module, name, None)):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise BadInput(f"{target}: {place} has no function {name!r}{nearest(name, known)}")
    returned = getattr(module, name)()
    if not isinstance(returned, tuple) or len(returned) not in (2, 3) or not isinstance(returned[1], Tensor):
        raise BadInput(f"{target} must return an energy and a tensor of start states, and data if it likes")
    energy, x0, *rest = returned
    if not callable(energy) and not hasattr(energy, "gradient"):
        raise BadInput(f"{target}: its energy is a {type(energy).__name__}, neither callable nor with a `gradient`")
    return Subject(energy, x0, {"target": target}, data=rest[0] if rest else None)


def trained(
    run: Path,
    *,
    chains: int,
    start: str | None = None,  # of STARTS; None: the generator where there is one, else data
    seed: int = 0,
    update: int | None = None,
    averaged: bool = True,
    evaluation_temperature: float = 1.0,
    device: str = "auto",
) -> Subject:
    """The model of a run, with its data, its step size, and the features that fit its data."""
    if chains < 2:
        raise BadInput(f"--chains must be at least 2, got {chains}")
    options = {"averaged": averaged, "device": device, "evaluation_temperature": evaluation_temperature}
    model = build.load(run, update=update, **options)  # type: ignore[arg-type]
    recipe = model.recipe
    data: Dataset = build.DATA.make(recipe.data)
    begin = _start(start or ("data" if model.generator is None else "generator"), model, data)
    is_digits = recipe.data.kind == "digits"
    features, traced = (_DIGITS, None) if is_digits else _features(model.shape)
    return Subject(
        model.energy,
        begin(chains, rng=generator(seed, "exam births", device=model.device)).x,
        {"recipe_hash": recipe.hash, "update": checkpoint.choose(places.find(run), update)},
        step_size=recipe.langevin.step_size,
        clip=recipe.langevin.clip,
        data=data,
        unseen=cache(lambda: _unseen(recipe.data)),
        data_noise=recipe.noise_learned,
        features=features,
        traced=traced,
        classifier=(lambda x: digits_classifier()(x.cpu())) if is_digits else None,
    )


_DIGITS = Features("fd_digits", lambda x: digits_classifier().features(x.cpu()))


def _unseen(chosen: Part) -> Dataset | None:
    data, seen = build.test_part(chosen)
    return None if seen else data


def _features(shape: tuple[int, ...]) -> tuple[Features, Features | None]:
    """Where distances are taken, and what R-hat's projections are of: Inception at every trace would take hours."""
    return (Features("fid", inception()), PLAIN) if len(shape) == 3 else (PLAIN, None)


def _start(kind: str, model: Model, data: Dataset) -> Start:
    if kind == "generator":
        if model.generator is None:
            raise BadInput("--start generator: this model has none; use data or noise")
        return FromGenerator(model.generator)
    if kind not in STARTS:
        raise BadInput(f"unknown start {kind!r}{nearest(kind, STARTS)}")
    return FromData(data) if kind == "data" else Uniform(model.shape)
