"""The sections that recipes are made of: frozen, typed, complete."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from ebmlife.errors import nearest
from ebmlife.sampling.schedule import Phase, Piecewise, constant, parse


def _schedule(value: Any) -> Any:
    if isinstance(value, str):
        return parse(value)
    if isinstance(value, list):
        try:
            return Piecewise(tuple(Phase(**phase) for phase in value))
        except TypeError as error:
            raise ValueError("phases are lists of from_update and value") from error
    return constant(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _plain(schedule: Piecewise, number: Callable[[float], float]) -> Any:
    phases = [{"from_update": phase.from_update, "value": number(phase.value)} for phase in schedule.phases]
    return phases if len(phases) > 1 else phases[0]["value"]


def _number(value: float) -> float:
    return int(value) if value == int(value) else value  # 40 and 40.0 are one number, and must hash alike


def _steps(schedule: Piecewise) -> Piecewise:
    if any(value != int(value) or not 0 <= value <= LARGEST for value in schedule.values):
        raise ValueError(f"numbers of steps are whole, not negative and at most {LARGEST}")
    return schedule


def _positive(schedule: Piecewise) -> Piecewise:
    if any(not 0 < value < float("inf") for value in schedule.values):
        raise ValueError("values must be above 0")
    return schedule


def _decay(schedule: Piecewise) -> Piecewise:
    if any(not 0 <= value < 1 for value in schedule.values):
        raise ValueError("values must be at least 0 and less than 1")
    return schedule


def _none(value: Any) -> Any:
    return None if isinstance(value, str) and value.lower() == "none" else value


OLD_EXPLOSION = 1e6  # the limit of all recipes in the first runs, whatever their temperature


def _explosion(value: Any) -> Any:
    """None, no absolute limit, for the limit that recipes had before divergence was detected by what is normal."""
    value = _none(value)
    try:
        return None if value is not None and float(value) == OLD_EXPLOSION else value
    except (TypeError, ValueError):
        return value  # pydantic explains what is wrong with it


Changing = Annotated[  # over training
    Piecewise, BeforeValidator(_schedule), PlainSerializer(lambda schedule: _plain(schedule, _number))
]
Steps = Annotated[Changing, AfterValidator(_steps)]
Rate = Annotated[Changing, AfterValidator(_positive)]
Decay = Annotated[  # 0.0 stays 0.0, as in the hashes of all recipes
    Changing, AfterValidator(_decay), PlainSerializer(lambda schedule: _plain(schedule, float))
]
Optional = BeforeValidator(_none)  # 'none' on the command line
Positive = Annotated[float, Field(gt=0)]
Explosion = Annotated[Positive | None, BeforeValidator(_explosion)]
LARGEST = 10**9  # of all counts: more is a typing error
Count = Annotated[int, Field(ge=1, le=LARGEST)]
Batch = Annotated[int, Field(ge=1, le=2**20)]
Natural = Annotated[int, Field(ge=0, le=LARGEST)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Part(Section):
    """A part of a recipe that is chosen by its kind, with the options of that kind."""

    model_config = ConfigDict(frozen=True, extra="allow")

    kind: str

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


def part(kind: str, **options: Any) -> Part:
    """The part of that kind with these options."""
    return Part.model_validate({"kind": kind, **options})


class Sampling(Section):
    """The Langevin walk of a trained model."""

    step_size: Annotated[float, Field(gt=0, lt=1e9)]  # "Langevin epsilon" in the paper's tables
    clip: Annotated[Positive | None, Optional] = None  # largest length of the gradient's part of a step, per state


class Langevin(Sampling):
    """The Langevin walk in training and after it."""

    steps: Steps  # K
    precision: Literal["auto", "f32", "bf16"] = "f32"  # of the network while walking
    sampler: Literal["langevin", "mala", "underdamped", "replica-exchange"] = "langevin"  # kernel of training walks


class Optimizer(Section):
    """How a network learns."""

    kind: Literal["adam", "sgd"] = "adam"
    learning_rate: Rate = constant(1e-4)
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9  # beta_1 of Adam
    beta_2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    nesterov: bool = False  # of sgd
    clip: Annotated[Positive | None, Optional] = None  # largest norm of the gradient
    clip_by: Literal["global", "weight"] = "global"  # clip the whole gradient, or that of each weight tensor separately
    ema: Decay = constant(0.999)  # decay of the averaged weights: 1 - 1 / (number of updates that are averaged)
    decay_until: Annotated[Count | None, Optional] = None  # the update at which the learning rate reaches 0, linearly


class Generator(Section):
    """A generator that chains start from."""

    net: Part = part("sngan")
    optimizer: Annotated[Optimizer | None, Optional] = Optimizer()  # None: frozen
    run: Annotated[str | None, Optional] = None  # a run whose generator, or a .safetensors file whose weights, are used


class Prior(Section):
    """A trained energy that is added to the learned one and does not learn."""

    run: str
    temperature: Annotated[Positive | None, Optional] = None  # None: the temperature of that run


class Noise(Section):
    """Noise levels, geometric from the largest to the smallest; standard deviations."""

    largest: Positive
    smallest: Positive
    count: Annotated[int, Field(ge=2, le=2**16)]


class Watch(Section):
    """How often pictures and TensorBoard entries of a run are written."""

    tensorboard_every: Count = 10
    pictures_every: Count = 1000
    pictures: Annotated[int, Field(ge=1, le=10_000)] = 64  # number of images in a grid


class Checkpoint(Section):
    """How often a run is saved, and which checkpoints are kept."""

    every: Count = 1000
    keep: Count = 2  # number of newest checkpoints that are kept
    keep_every: Annotated[Count | None, Optional] = None  # checkpoints at multiples of this are kept too


def explain(error: ValidationError, model: type[BaseModel], *, prefix: str = "") -> str:
    """One line that explains the first mistake of a validation error."""
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


# Fields that recipes have gained since the first runs were saved, by their full path, each with the value at which it
# changes nothing. At that value a field is left out of the hash, so that older runs keep theirs.
_LATER_OF_OPTIMIZERS = {"weight_decay": 0, "nesterov": False, "decay_until": None, "clip_by": "global"}
LATER: dict[str, Any] = {
    "method": "ebm",
    "net.activation": "relu",
    "net.activation (perceptron)": "silu",  # for a part of this kind
    "langevin.sampler": "langevin",
    "prior": None,
    "energy_l2": 0,
    "data.train": None,
    "data.crop": None,
    "data.labels": None,
    "data.held_out": None,
    "chains.count_first_walk": True,
    "generator.net.batch_norm_momentum": 0.1,
    "generator.net.scale_and_offset": False,
    **{f"optimizer.{name}": value for name, value in _LATER_OF_OPTIMIZERS.items()},
    **{f"generator.optimizer.{name}": value for name, value in _LATER_OF_OPTIMIZERS.items()},
}
# Fields whose value for "none" used to be another one: the hash still contains that one.
_BEFORE = {"explosion": OLD_EXPLOSION}


def as_before(values: dict[str, Any]) -> dict[str, Any]:
    """A recipe's fields with the values that meant "none" in the first runs."""
    return {name: _BEFORE[name] if value is None and name in _BEFORE else value for name, value in values.items()}


def without_later(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A recipe's fields without those of `LATER` that change nothing."""
    kind, absent = values.get("kind"), object()
    return {
        name: without_later(value, f"{prefix}{name}.") if isinstance(value, dict) else value
        for name, value in values.items()
        if value != LATER.get(f"{prefix}{name} ({kind})", LATER.get(prefix + name, absent))
    }
