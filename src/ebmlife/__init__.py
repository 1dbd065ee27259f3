"""Energy-based models of images, for every length of Langevin chain."""

__version__ = "0.1.0"

from ebmlife import interrupts as interrupts  # first: the others take seconds to load

# isort: split
from ebmlife import attacks, exam, importers, nets
from ebmlife.build import load
from ebmlife.defense import DefendedClassifier, Purifier
from ebmlife.errors import BadInput, Diverged
from ebmlife.langevin import langevin
from ebmlife.model import Model
from ebmlife.prepare import prepare
from ebmlife.randomness import seeded

__all__ = [
    "BadInput",
    "DefendedClassifier",
    "Diverged",
    "Model",
    "Purifier",
    "__version__",
    "attacks",
    "exam",
    "importers",
    "langevin",
    "load",
    "nets",
    "prepare",
    "seeded",
]
