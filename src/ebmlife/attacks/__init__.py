"""Attacks on defended classifiers, and what is left of the defence."""

from ebmlife.attacks.examples import Examples
from ebmlife.attacks.losses import LOSSES, cross_entropy, dlr, margin
from ebmlife.attacks.masking import Check, check_masking, gradient_norms
from ebmlife.attacks.pgd import evaluate
from ebmlife.attacks.plots import plot_langevin_steps, plot_steps
from ebmlife.attacks.presets import PRESETS, Preset, preset
from ebmlife.attacks.progress import Progress
from ebmlife.attacks.record import Record, Tally, table
from ebmlife.attacks.shares import Share
from ebmlife.attacks.threat import Threat

__all__ = [
    "LOSSES",
    "PRESETS",
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
