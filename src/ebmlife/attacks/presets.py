"""The paper's attacks by name, from its table "Defense Evaluation" and the high-power table of its appendix C.

The size of Langevin's steps belongs to the energy and comes from its recipe.
"""

from dataclasses import dataclass

from ebmlife.attacks.threat import Threat
from ebmlife.errors import BadInput, nearest


@dataclass(frozen=True)
class Preset:
    threat: Threat
    steps: int
    step_size: float  # of the attack, in pixels of [0, 1]
    replicas: int  # H_adv
    verify: int  # H_def
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
    if name not in PRESETS:
        raise BadInput(f"unknown preset {name!r}{nearest(name, PRESETS)}")
    return PRESETS[name]
