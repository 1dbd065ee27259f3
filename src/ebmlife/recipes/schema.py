"""Recipes, by method: frozen, typed, complete, hashed. Names become classes in `runs.build`, not here."""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationError

from ebmlife.errors import BadInput, nearest
from ebmlife.recipes.sections import (
    LATER,
    Batch,
    Checkpoint,
    Count,
    Explosion,
    Generator,
    Langevin,
    Natural,
    Noise,
    Optimizer,
    Optional,
    Positive,
    Prior,
    Sampling,
    Section,
    Watch,
    as_before,
    explain,
    without_later,
)
from ebmlife.recipes.sections import Part as Part  # what recipes are written with
from ebmlife.recipes.sections import part as part


class Recipe(Section):
    """The fields that recipes of all methods have."""

    method: str
    name: str
    summary: str = ""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    updates: Count
    batch: Batch = 128
    flip: bool = False  # mirror data images at random
    workers: Annotated[int, Field(ge=0, le=256)] = 2  # processes that decode images that do not fit into memory
    device: str = "auto"
    data: Part
    net: Part
    optimizer: Optimizer = Optimizer()
    start: Part  # where the chains of the trained model start
    langevin: Sampling
    sampling_steps: Natural  # number of Langevin steps of a sample after training
    watch: Watch = Watch()
    checkpoint: Checkpoint = Checkpoint()

    divergence_hint: ClassVar[str] = "a lower learning rate (--optimizer.learning_rate)"  # what to try if it diverges

    @property
    def noise_learned(self) -> float:
        """The standard deviation of the noise on the data whose density is learned."""
        return 0.0

    @property
    def hash(self) -> str:
        """Identifies what is learned: 12 hexadecimal digits of all fields but the free ones."""
        learned = without_later(as_before(self.model_dump(mode="json", exclude=FREE)))
        return hashlib.sha256(json.dumps(learned, sort_keys=True).encode()).hexdigest()[:12]


class EBMRecipe(Recipe):
    """Maximum likelihood by Langevin sampling, with chains of any length."""

    method: Literal["ebm"] = "ebm"
    data_noise: Annotated[float, Field(ge=0)] = 0.0  # "data epsilon" in the paper's tables
    energy_l2: Annotated[float, Field(ge=0)] = 0.0  # weight of a penalty on squared energies, relative to energies
    net: Part = part("sngan")
    temperature: Positive
    tau: Annotated[Positive | None, Optional] = None  # width of the Gaussian term |x|^2 / (2 tau^2)
    prior: Annotated[Prior | None, Optional] = None
    langevin: Langevin
    chains: Part
    generator: Annotated[Generator | None, Optional] = None
    explosion: Explosion = None  # an energy difference beyond this is a divergence, whatever is normal for the run

    divergence_hint: ClassVar[str] = (
        "more Langevin steps (--langevin.steps), a lower learning rate (--optimizer.learning_rate), "
        "more noise on the data (--data_noise)"
    )

    @property
    def noise_learned(self) -> float:
        return self.data_noise


class GANRecipe(Recipe):
    """A generator against a spectrally normalized discriminator; an update is one of the generator."""

    method: Literal["gan"]
    net: Part = part("sngan")  # the discriminator
    generator: Generator = Generator()
    discriminator_steps: Count = 5
    generator_batch: Annotated[Batch | None, Optional] = None  # None: the size of the discriminator's batch
    start: Part = part("generator")
    langevin: Sampling = Sampling(step_size=1e-2)
    sampling_steps: Natural = 0


class ClassifierRecipe(Recipe):
    """A classifier, by cross-entropy."""

    method: Literal["classifier"]
    crop: Natural = 0  # largest random shift of images, in pixels
    data_noise: Annotated[float, Field(ge=0)] = 0.0
    test: Annotated[Part | None, Optional] = None  # data that the classifier is tested on
    test_every: Count = 500
    start: Part = part("data")
    langevin: Sampling = Sampling(step_size=1e-2)
    sampling_steps: Natural = 0


class ScoreRecipe(Recipe):
    """The score of data under noise of many levels, by denoising; chains walk at the smallest."""

    method: Literal["score"]
    net: Part = part("score")
    noise: Noise
    start: Part = part("annealed")
    sampling_steps: Natural = 0

    @property
    def noise_learned(self) -> float:
        return self.noise.smallest


class FlowRecipe(Recipe):
    """A normalizing flow, by exact maximum likelihood."""

    method: Literal["flow"]
    net: Part = part("glow")
    levels: Annotated[int, Field(ge=2, le=2**16)] = 256  # gray levels of the data: each is spread over its bin
    start: Part = part("generator")
    sampling_steps: Natural = 0

    @property
    def noise_learned(self) -> float:
        """The standard deviation of a value that is spread uniformly over its bin."""
        return 2 / (self.levels - 1) / 12**0.5


class RecoveryRecipe(Recipe):
    """EBMs of data given noisier data, by recovery likelihood; chains walk at the lowest level."""

    method: Literal["recovery"]
    net: Part = part("sngan")
    levels: Annotated[int, Field(ge=2, le=2**16)] = 6  # T
    steps: Count = 30  # Langevin steps of a chain in training, K
    relative_step: Positive = 2e-4**0.5  # Langevin step size in units of a level's noise, b
    start: Part = part("progressive")
    sampling_steps: Natural = 0

    @property
    def noise_learned(self) -> float:
        """The noise of the lowest level, after the first small step of the diffusion, of variance 1e-4."""
        return 1e-2


# Fields that may change when a run is resumed: its length, its name, how it is shown and saved, and where it runs.
FREE = {"name", "summary", "updates", "watch", "checkpoint", "device", "workers", "test", "test_every"}
METHODS: dict[str, type[Recipe]] = {
    "ebm": EBMRecipe,
    "gan": GANRecipe,
    "classifier": ClassifierRecipe,
    "score": ScoreRecipe,
    "flow": FlowRecipe,
    "recovery": RecoveryRecipe,
}


def validate(values: Mapping[str, Any]) -> Recipe:
    """A recipe from plain values.

    Raises:
        BadInput: One line that names the first wrong field.
    """
    if not isinstance(values, Mapping):
        raise BadInput(f"expected a recipe with named fields, got {values!r:.40}")
    method = values.get("method", "ebm")
    if not isinstance(method, str) or method not in METHODS:
        raise BadInput(f"unknown method {method!r}{nearest(str(method), METHODS)}")
    try:
        return METHODS[method].model_validate(values)
    except ValidationError as error:
        raise BadInput(explain(error, METHODS[method])) from error


def as_ebm(recipe: Recipe) -> EBMRecipe:
    """The recipe, if its method is 'ebm'.

    Raises:
        BadInput: It has another method.
    """
    if not isinstance(recipe, EBMRecipe):
        raise BadInput(f"{recipe.name} is trained by the method {recipe.method!r}; this works for 'ebm' only")
    return recipe


def override(recipe: Recipe, changes: Mapping[str, str]) -> Recipe:
    """The recipe with fields changed as on the command line, by dotted names: {'langevin.steps': '50'}."""
    if changes.get("method", recipe.method) != recipe.method:
        raise BadInput(f"the method of {recipe.name} is {recipe.method!r} and cannot be changed; choose another recipe")
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
    """'field: old -> new' for every field that changes what is learned. A recipe that is older than a field counts as
    having the field's earlier behavior."""
    a, b = (flat(without_later(r.model_dump(mode="json", exclude=FREE))) for r in (old, new))

    def value(fields: dict[str, Any], key: str) -> Any:
        return fields.get(key, LATER.get(key))

    changed = [key for key in sorted({*a, *b}) if a.get(key) != b.get(key)]
    return [f"{key}: {value(a, key)} -> {value(b, key)}" for key in changed]


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{'a': {'b': 1}} -> {'a.b': 1}."""
    leaves: dict[str, Any] = {}
    for key, value in values.items():
        leaves |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return leaves
