"""Attacks on defended classifiers, and the accuracy that is left under them."""

from ebmlife.attacks.attack import Attack, evaluate
from ebmlife.attacks.config import AttackConfig
from ebmlife.attacks.losses import LOSSES, cross_entropy, dlr, margin
from ebmlife.attacks.masking import Check, check_masking, gradient_norms
from ebmlife.attacks.optimizers import OPTIMIZERS
from ebmlife.attacks.presets import PRESETS, Preset, preset
from ebmlife.attacks.record import Examples, Record, plot_langevin_steps, plot_steps, table
from ebmlife.attacks.tally import Progress, Share, Tally
from ebmlife.attacks.threat import Threat

__all__ = [
    "LOSSES",
    "OPTIMIZERS",
    "PRESETS",
    "Attack",
    "AttackConfig",
    "Check",
    "Examples",
    "Preset",
    "Progress",
    "Record",
    "Share",
    "Tally",
    "Threat",
    "check_masking",
    "cross_entropy",
    "dlr",
    "evaluate",
    "gradient_norms",
    "margin",
    "plot_langevin_steps",
    "plot_steps",
    "preset",
    "table",
]
