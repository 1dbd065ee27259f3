"""What a run is made of: frozen, typed, complete, hashed. Names of parts become classes in `build`, not here."""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from ebmlife.errors import BadInput, nearest
from ebmlife.schedule import Phase, Piecewise, constant, parse


def _schedule(value: Any) -> Any:
    if isinstance(value, str):
        return parse(value)
    if isinstance(value, list):
        try:
            return Piecewise(tuple(Phase(**phase) for phase in value))
        except TypeError as error:
            raise ValueError("phases are lists of from_update and value") from error
    return constant(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _plain(schedule: Piecewise) -> Any:
    phases = [{"from_update": phase.from_update, "value": _number(phase.value)} for phase in schedule.phases]
    return phases if len(phases) > 1 else phases[0]["value"]


def _number(value: float) -> float:
    return int(value) if value == int(value) else value  # 40 and 40.0 are one number, and must hash alike


def _steps(schedule: Piecewise) -> Piecewise:
    if any(value != int(value) or value < 0 for value in schedule.values):
        raise ValueError("numbers of steps are whole and not negative")
    return schedule


def _positive(schedule: Piecewise) -> Piecewise:
    if any(not 0 < value < float("inf") for value in schedule.values):
        raise ValueError("values must be above 0")
    return schedule


def _none(value: Any) -> Any:
    return None if isinstance(value, str) and value.lower() == "none" else value


Changing = Annotated[Piecewise, BeforeValidator(_schedule), PlainSerializer(_plain)]  # over training
Steps = Annotated[Changing, AfterValidator(_steps)]
Rate = Annotated[Changing, AfterValidator(_positive)]
Optional = BeforeValidator(_none)  # 'none' on the command line
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Part(Section):
    """Something chosen by its kind, with the options of that kind."""

    model_config = ConfigDict(frozen=True, extra="allow")

    kind: str

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


def part(kind: str, **options: Any) -> Part:
    return Part.model_validate({"kind": kind, **options})


class Langevin(Section):
    step_size: Positive  # "Langevin epsilon" in the paper's tables
    steps: Steps  # K
    clip: Annotated[Positive | None, Optional] = None  # longest gradient part of a step, per state
    precision: Literal["auto", "f32", "bf16"] = "f32"  # of the network while walking


class Optimizer(Section):
    kind: Literal["adam", "sgd"] = "adam"
    learning_rate: Rate = constant(1e-4)
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9  # beta_1 of Adam
    beta_2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    clip: Annotated[Positive | None, Optional] = None  # largest norm of the gradient
    ema: Annotated[float, Field(ge=0, lt=1)] = 0.999


class Generator(Section):
    net: Part = part("sngan")
    optimizer: Annotated[Optimizer | None, Optional] = Optimizer()  # None: frozen
    run: Annotated[str | None, Optional] = None  # take the weights of this run's generator


class Prior(Section):
    """A trained energy that is added to the learned one and does not learn."""

    run: str
    temperature: Annotated[Positive | None, Optional] = None  # None: that of the run


class Watch(Section):
    tensorboard_every: Count = 10
    pictures_every: Count = 1000
    pictures: Count = 64  # images of a grid


class Checkpoint(Section):
    every: Count = 1000
    keep: Count = 2  # the newest ones
    keep_every: Annotated[Count | None, Optional] = None  # and each at a multiple of this


class Recipe(Section):
    name: str
    summary: str = ""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    updates: Count
    batch: Count = 128
    flip: bool = False  # mirror data images at random
    workers: Annotated[int, Field(ge=0)] = 2  # processes that decode images too many for the memory
    device: str = "auto"
    data: Part
    data_noise: Annotated[float, Field(ge=0)] = 0.0  # "data epsilon" in the paper's tables
    net: Part = part("sngan")
    temperature: Positive
    tau: Annotated[Positive | None, Optional] = None  # of the Gaussian term |x|^2 / (2 tau^2)
    prior: Annotated[Prior | None, Optional] = None
    langevin: Langevin
    start: Part
    chains: Part
    optimizer: Optimizer = Optimizer()
    generator: Annotated[Generator | None, Optional] = None
    sampling_steps: Annotated[int, Field(ge=0)]  # Langevin steps of a sample after training
    explosion: Positive = 1e6  # an energy difference beyond this is a divergence
    watch: Watch = Watch()
    checkpoint: Checkpoint = Checkpoint()

    @property
    def hash(self) -> str:
        """Names what is learned: all but the fields that are free."""
        learned = _without_later(self.model_dump(mode="json", exclude=FREE))
        return hashlib.sha256(json.dumps(learned, sort_keys=True).encode()).hexdigest()[:12]


# May change when a run is resumed: its length, its labels, how it is watched and saved, and what computes it.
FREE = {"name", "summary", "updates", "watch", "checkpoint", "device", "workers"}
# Fields that older runs did not have: None is what they had, and must not change their hash.
LATER = {"prior", "data.train", "data.crop"}


def _without_later(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    return {
        key: _without_later(value, f"{prefix}{key}.") if isinstance(value, dict) else value
        for key, value in values.items()
        if value is not None or prefix + key not in LATER
    }


def validate(values: Mapping[str, Any]) -> Recipe:
    """A recipe from plain values; the first mistake becomes one line that names its field."""
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        raise BadInput(explain(error, Recipe)) from error


def explain(error: ValidationError, model: type[BaseModel], *, prefix: str = "") -> str:
    """One line for the first mistake of a validation error."""
    first = error.errors()[0]
    path = [str(key) for key in first["loc"]]
    name = prefix + ".".join(path)
    if first["type"] == "extra_forbidden":
        return f"unknown field {name!r}{nearest(path[-1], _siblings(model, path))}"
    if first["type"] == "missing":
        return f"field {name!r} is missing"
    message = first["msg"].removeprefix("Value error, ")
    return f"field {name!r}: {message[0].lower()}{message[1:]}, got {first['input']!r}"


def _siblings(model: type[BaseModel], path: list[str]) -> list[str]:
    for key in path[:-1]:
        annotation = model.model_fields[key].annotation
        options = [annotation, *getattr(annotation, "__args__", ())]
        model = next(o for o in options if isinstance(o, type) and issubclass(o, BaseModel))
    return list(model.model_fields)


def override(recipe: Recipe, changes: Mapping[str, str]) -> Recipe:
    """The recipe with dotted fields replaced by text, as the command line gives it: {'langevin.steps': '50'}."""
    values = recipe.model_dump(mode="json")
    for name in sorted(changes, key=lambda name: not name.endswith(".kind")):  # a kind first, then its options
        *path, last = name.split(".")
        section = values
        for key in path:
            if not isinstance(section.get(key), dict):
                raise BadInput(f"unknown field {name!r}{nearest(name, flat(values))}")
            section = section[key]
        if last == "kind" and path and path[-1] != "optimizer" and section.get("kind") not in (None, changes[name]):
            section.clear()  # another kind has other options
        section[last] = changes[name]
    return validate(values)


def differences(old: Recipe, new: Recipe) -> list[str]:
    """'field: old -> new' for all that changes what is learned."""
    a, b = (flat(r.model_dump(mode="json", exclude=FREE)) for r in (old, new))
    return [f"{key}: {a.get(key)} -> {b.get(key)}" for key in sorted({*a, *b}) if a.get(key) != b.get(key)]


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{'a': {'b': 1}} -> {'a.b': 1}."""
    leaves: dict[str, Any] = {}
    for key, value in values.items():
        leaves |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return leaves
