"""Who sits an exam: the model of a run, or whatever energy a function of the user's returns."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from ebmlife.attacks import validation
from ebmlife.data import Dataset
from ebmlife.defense import classifiers
from ebmlife.errors import BadInput, nearest
from ebmlife.exam import digits
from ebmlife.exam.cycle import HasGradient
from ebmlife.exam.inception import inception
from ebmlife.exam.reference import PLAIN, Features
from ebmlife.recipes.schema import Part
from ebmlife.runs import build, locate
from ebmlife.runs.evaluated import choose
from ebmlife.runs.model import Model
from ebmlife.runs.user_code import NOTHING, Trust, import_object, is_import_path
from ebmlife.sampling import fingerprint
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.rng import derive_seed, generator, normal
from ebmlife.storage import checkpoint
from ebmlife.training.recovery import LowestEnergy
from ebmlife.training.starts import FromData, FromGenerator, Start, Uniform

STARTS = ("data", "noise", "generator")
FEATURES = ("fid", "digits", "moments")  # what distances to the data can be taken in
_MOST = 10**6  # chains
_BIRTHS = 256  # chains that a generator makes together: memory is that of so many


@dataclass(frozen=True)
class Subject:
    energy: Energy | HasGradient
    x0: Tensor
    identity: dict[str, Any]  # an exam that was begun goes on with no other
    step_size: float = 1e-2
    clip: float | None = None
    data: Dataset | Tensor | None = None
    unseen: Callable[[], Dataset | None] = lambda: None  # data like these that the model was not trained on
    evaluated_on: dict[str, Any] | None = None  # where the data come from
    data_noise: float = 0.0
    features: str = "moments"  # of FEATURES
    classifier: Callable[[Tensor], Tensor] | None = None


def is_function(target: str) -> bool:
    """Whether a target is package.module:function and not the folder of a run."""
    return is_import_path(target) and not target.startswith(("zoo:", "hf:"))


def given(target: str, *, seed: int = 0) -> Subject:
    """What package.module:function() returns: an energy (or an object with a `gradient`), start states, and, where
    samples are to be compared with more than those, data. It is called under torch's seed: an exam that is gone on with
    has the same start."""
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
        raise BadInput(f"{target} must return an energy and a tensor of start states, and data if it likes")
    energy, x0, *rest = returned
    if not callable(energy) and not hasattr(energy, "gradient"):
        raise BadInput(f"{target}: its energy is a {type(energy).__name__}, neither callable nor with a `gradient`")
    data = rest[0] if rest else None
    if not isinstance(data, Tensor | None) and not hasattr(data, "labels"):
        raise BadInput(f"{target}: its data are a {type(data).__name__}; expected a tensor (N, ...) or a data set")
    identity = {"target": target, "energy": fingerprint.of_functions(energy), "states": fingerprint.of_tensors(x0)}
    identity |= {"data": fingerprint.of_tensors(data)} if isinstance(data, Tensor) else {}
    return Subject(energy, x0, identity, data=data)


def trained(
    run: Path,
    *,
    chains: int,
    start: str | None = None,  # of STARTS; None: the generator where there is one, else data
    seed: int = 0,
    update: int | None = None,
    averaged: bool = True,
    evaluation_temperature: float = 1.0,
    conditional: bool = False,
    device: str = "auto",
    data: Mapping[str, str] = MappingProxyType({}),  # fields data.* in place of the run's own
    split: str | None = None,  # the part of the data by its name; None: what the run was trained on
    trust_code: str | Iterable[str] | Trust = (),
) -> Subject:
    """The model of a run, with its data, its step size, and the features that fit its data.

    `conditional`: of recovery likelihood, what was learned is an energy of images given noisier ones; each chain is
    given one of its own start.
    """
    if not 2 <= chains <= _MOST:
        raise BadInput(f"--chains must be at least 2 and at most {_MOST}, got {chains}")
    model = build.load(
        run,
        update=update,
        averaged=averaged,
        device=device,
        evaluation_temperature=evaluation_temperature,
        trust_code=trust_code,
    )
    recipe, images = model.recipe, choose(model, data, split, tests=False)
    begin = _start(start or ("data" if model.generator is None else "generator"), model, images.data)
    features = build.describe(recipe.data).features_for(model.shape)
    newest, rng = (
        checkpoint.choose(locate.find(run, update=update), update),
        generator(seed, "exam births", device=model.device),
    )
    x0 = torch.cat([begin(min(_BIRTHS, chains - born), rng=rng).x for born in range(0, chains, _BIRTHS)])
    energy = _given_noisier(model, x0, rng) if conditional else model.energy
    return Subject(
        energy,
        x0,
        {"recipe_hash": recipe.hash, "update": newest, "energy": fingerprint.of_functions(energy)},
        step_size=recipe.langevin.step_size,
        clip=recipe.langevin.clip,
        data=images.data,
        evaluated_on=images.about,
        unseen=cache(lambda: images.data if images.about["trained_on"] is False else _unseen(recipe.data)),
        data_noise=recipe.noise_learned,
        features=features,
        classifier=(lambda x: digits.digits_classifier()(x.cpu())) if features == "digits" else None,
    )


def find_features(name: str, shape: tuple[int, ...]) -> tuple[Features, Features | None]:
    """Where distances are taken, and what R-hat's projections are of: Inception at every trace would take hours."""
    if name == "fid" and (len(shape) != 3 or shape[0] not in (1, 3)):
        raise BadInput(
            f"--features fid is of images in grey or colour, and these are states of shape {shape}; use moments"
        )
    if name == "digits" and shape != (1, 8, 8):
        raise BadInput(f"--features digits is of images (1, 8, 8), and these are states of shape {shape}")
    if name == "fid":
        return Features("fid", inception(), kept=True), PLAIN
    return (digits.FEATURES if name == "digits" else PLAIN), None


def find_classifier(name: str, x: Tensor, *, trust: Trust = NOTHING) -> Callable[[Tensor], Tensor]:
    """The classifier of that name, tried on states like x before hours are spent."""
    found = classifiers.find(name, trust=trust).to(x.device)
    validation.classes(found, x)
    return found


def _given_noisier(model: Model, x0: Tensor, rng: torch.Generator) -> Energy:
    if not isinstance(model.energy, LowestEnergy):
        raise BadInput(f"--conditional is of recovery likelihood; {model.recipe.name} has one energy for all states")
    return model.energy.given(model.energy.noisier(x0, noise=normal(rng)))


def _unseen(chosen: Part) -> Dataset | None:
    data, seen = build.test_part(chosen)
    return None if seen else data


def _start(kind: str, model: Model, data: Dataset) -> Start:
    if kind == "generator":
        if model.generator is None:
            raise BadInput("--start generator: this model has none; use data or noise")
        return FromGenerator(model.generator)
    if kind not in STARTS:
        raise BadInput(f"unknown start {kind!r}{nearest(kind, STARTS)}")
    return FromData(data) if kind == "data" else Uniform(model.shape)
