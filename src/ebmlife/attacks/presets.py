"""The attacks of the paper by name, from its table "Defense Evaluation" and the high-power table of its appendix C.

They do not set the Langevin step size: it belongs to the energy and comes from the recipe.
"""

from dataclasses import dataclass

from ebmlife.attacks.threat import Threat
from ebmlife.errors import by_name


@dataclass(frozen=True)
class Preset:
    """The settings of an attack in the paper.

    Attributes:
        threat: The perturbations that the attacker may choose.
        steps: Number of attack steps.
        step_size: Length of an attack step, in pixels of [0, 1].
        replicas: Purifications that each prediction of the attack averages (H_adv).
        verify: Purifications that a verification averages (H_def).
        langevin_steps: Langevin steps of the defense.
        images: Number of attacked images.
    """

    threat: Threat
    steps: int
    step_size: float
    replicas: int
    verify: int
    langevin_steps: int
    images: int


PRESETS = {
    "paper-cifar10": Preset(
        threat=Threat("linf", 8 / 255),
        steps=50,
        step_size=2 / 255,
        replicas=48,
        verify=128,
        langevin_steps=2000,  # the table; the text says 1500
        images=5000,
    ),
    "paper-imagenet": Preset(
        threat=Threat("linf", 2 / 255),
        steps=50,
        step_size=1 / 255,
        replicas=16,
        verify=64,
        langevin_steps=200,
        images=10_000,
    ),
    "paper-imagenet-high-power": Preset(
        threat=Threat("linf", 2 / 255),
        steps=200,
        step_size=1 / 255,
        replicas=32,
        verify=64,
        langevin_steps=200,
        images=1600,
    ),
}


def preset(name: str) -> Preset:
    """Returns the preset of that name.

    Args:
        name: A name in `PRESETS`.

    Raises:
        BadInput: There is no preset of that name.
    """
    return by_name(PRESETS, name, "preset")
