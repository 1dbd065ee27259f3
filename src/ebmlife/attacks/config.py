"""The configuration of an attack. It is validated once, and saved with the record."""

from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

from ebmlife.attacks import losses, optimizers
from ebmlife.attacks.losses import Loss
from ebmlife.attacks.threat import Threat
from ebmlife.defense.defended import DefendedClassifier
from ebmlife.errors import BadInput, at_least

# Fields that later versions added are saved only where they differ from their default: settings without them are those
# of the same attack, saved before the field existed.
_ADDED_LATER = {"added later": True}


@dataclass(frozen=True, kw_only=True)
class AttackConfig:
    """The settings of an attack that depend neither on the model nor on the images.

    Args:
        threat: The perturbations that the attacker may choose, or their text, such as "linf:8/255".
        steps: Number of attack steps (N in the paper).
        step_size: Length of an attack step in pixels of [0, 1] (alpha in the paper). None: a quarter of the radius.
        replicas: Purifications that each prediction of the attack averages (H_adv). None: the model's own number.
        verify: Purifications that a verification or a final evaluation averages (H_def).
        evaluations: Number of final evaluations of the last adversaries.
        loss: What the attack maximizes: a name in `LOSSES`, or a function of logits (B, classes) and labels (B,).
        seed: Seed of every random draw of the attack.
        group: Number of images that are attacked together. It changes no result. None: as many as fill three batches
            of the purifier.
        method: The optimizer that proposes the next adversary: a name in `OPTIMIZERS`.

    Raises:
        BadInput: A value is of the wrong type or out of range.
    """

    threat: Threat
    steps: int = 50
    step_size: float | None = None
    replicas: int | None = None
    verify: int = 128
    evaluations: int = 5
    loss: str | Loss = "cross-entropy"
    seed: int = 0
    group: int | None = None
    method: str = field(default="pgd", metadata=_ADDED_LATER)

    def __post_init__(self) -> None:
        object.__setattr__(self, "threat", Threat.of(self.threat))
        for name in ("steps", "replicas", "verify", "evaluations", "seed", "group"):
            _check_integer(name, getattr(self, name))
        if self.steps < 0:
            raise BadInput(f"the number of attack steps must be at least 0, got {self.steps}")
        counts = {"replicas": self.replicas, "verify": self.verify, "evaluations": self.evaluations}
        given = counts | {"group": self.group}
        at_least(1, "attack", **{name: count for name, count in given.items() if count is not None})
        if self.replicas is not None and self.verify < self.replicas:
            raise BadInput(
                f"verify must be at least the {self.replicas} replicas of the attack, got {self.verify}; "
                "a verification averages more purifications than an attack step"
            )
        _check_step_size(self.length, self.threat)
        losses.find(self.loss)
        optimizers.find(self.method)

    @property
    def length(self) -> float:
        """The length of an attack step in pixels of [0, 1]: `step_size`, or its default."""
        return self.threat.radius / 4 if self.step_size is None else self.step_size

    def for_defense(self, robust: DefendedClassifier) -> "AttackConfig":
        """Returns the configuration with `replicas` and `verify` as an attack on this defense uses them."""
        config = replace(self, replicas=robust.replicas if self.replicas is None else self.replicas)
        if not robust.purifier.steps:
            config = replace(config, replicas=1)  # without Langevin steps all replicas are equal
        if not robust.purifier.steps or robust.gradient.known_noise:
            assert config.replicas is not None
            config = replace(config, verify=config.replicas)  # with known noise, a second draw would be the same
        return config

    def settings(self) -> dict[str, Any]:
        """Returns the configuration as plain values, as records and settings.json hold it."""
        saved = {each.name: getattr(self, each.name) for each in fields(self) if not self._left_out(each)}
        plain = {"threat": str(self.threat), "radius": self.threat.radius}
        return saved | plain | {"step_size": self.length, "loss": losses.name(self.loss)}

    def _left_out(self, each: Any) -> bool:
        return bool(each.metadata) and each.default is not MISSING and getattr(self, each.name) == each.default


def _check_integer(name: str, count: object) -> None:
    """Raises BadInput unless the count is an integer, or None for a default."""
    if count is not None and (not isinstance(count, int) or isinstance(count, bool)):
        raise BadInput(f"{name} of an attack must be an integer, got {count!r}")


def _check_step_size(step_size: object, threat: Threat) -> None:
    if not isinstance(step_size, int | float):
        raise BadInput(f"the step_size of an attack must be a number in pixels of [0, 1], got {step_size!r}")
    if not step_size > 0:
        raise BadInput(f"the step_size of an attack must be above 0, got {step_size}")
    if step_size > 2 * threat.radius:
        raise BadInput(
            f"step_size {step_size:g} is longer than the diameter of {threat}; it is in pixels of [0, 1]: "
            f"for {step_size:g} of 255 levels, give {step_size:g}/255"
        )
