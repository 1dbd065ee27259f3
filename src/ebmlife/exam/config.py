"""The settings of an exam."""

from dataclasses import asdict, dataclass
from typing import Any

from ebmlife.errors import BadInput, nearest
from ebmlife.sampling.kernels import SAMPLERS

STARTS = ("data", "noise", "generator")  # where the chains of a run can start
TRAINING_START = "training"  # where chains start in training: report pages use it
FAST_FEATURES = "fast"  # the default features, but never Inception
NO_CLASSIFIER = "none"
DEFAULT_SAMPLER = "langevin"
MOST_CHAINS = 10**6
_LARGEST_STEP = 1e6  # far beyond any use, and within float32


@dataclass(frozen=True, kw_only=True)
class ExamConfig:
    """The settings of an exam, validated on creation; exam.json holds them.

    None means the default of what is examined: a run has its own step size, start, features and classifier.

    Args:
        steps: Number of Langevin steps.
        chains: Number of chains (a run's default: 64).
        step_size: Langevin step size (default: the recipe's, or 0.01); other samplers start with it and adapt it.
        start: Start of a run's chains: "data", "noise" or "generator" (default: the generator if there is one, else
            data), or "training" for the start that training uses.
        seed: Seed of all random streams.
        batch: Number of chains that are run together.
        raw: Whether to use the raw weights of a run instead of their moving average.
        evaluation_temperature: Divisor of a run's learned and prior energy.
        features: Name of the features in which distances are measured, or "fast" for the default without Inception.
        classifier: Name of the classifier whose classes are followed, or "none".
        conditional: Whether each chain is conditioned on a noisier image of its start (recovery likelihood).
        shown: Number of chains in the strip of images.
        sampler: Name of the sampling kernel: "langevin", "mala", "underdamped" or "replica-exchange".
    """

    steps: int = 100_000
    chains: int | None = None
    step_size: float | None = None
    start: str | None = None
    seed: int = 0
    batch: int = 256
    raw: bool = False
    evaluation_temperature: float = 1.0
    features: str | None = None
    classifier: str | None = None
    conditional: bool = False
    shown: int = 8
    sampler: str = DEFAULT_SAMPLER

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch < 1:
            raise BadInput(
                f"an exam needs at least 1 step and batches of at least 1, got {self.steps} and {self.batch}"
            )
        if self.chains is not None and not 2 <= self.chains <= MOST_CHAINS:
            raise BadInput(f"--chains must be at least 2 and at most {MOST_CHAINS}, got {self.chains}")
        if self.step_size is not None and not 0 < self.step_size < _LARGEST_STEP:
            raise BadInput(f"an exam needs a step_size above 0 and below {_LARGEST_STEP:g}, got {self.step_size}")
        if self.start not in (None, TRAINING_START, *STARTS):
            raise BadInput(f"unknown start {self.start!r}{nearest(str(self.start), STARTS)}")
        if self.sampler not in SAMPLERS:
            raise BadInput(f"unknown sampler {self.sampler!r}{nearest(self.sampler, SAMPLERS)}")

    def saved(self) -> dict[str, Any]:
        """Returns the settings as exam.json holds them."""
        settings = asdict(self) | {"conditional": self.conditional or None}
        if self.sampler == DEFAULT_SAMPLER:
            del settings["sampler"]  # older files have no sampler
        del settings["shown"]  # it changes no number; the checkpoints of the chains have it
        return settings
