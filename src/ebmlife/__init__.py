"""Energy-based models of images, for every length of Langevin chain."""

__version__ = "0.1.0"

from ebmlife import exam, nets
from ebmlife.build import load
from ebmlife.errors import BadInput, Diverged
from ebmlife.langevin import langevin
from ebmlife.model import Model
from ebmlife.prepare import prepare
from ebmlife.randomness import seeded

__all__ = ["BadInput", "Diverged", "Model", "__version__", "exam", "langevin", "load", "nets", "prepare", "seeded"]
