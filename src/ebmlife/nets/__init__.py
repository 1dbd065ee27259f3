"""Networks."""

from ebmlife.nets.perceptron import PerceptronEnergy, PerceptronGenerator
from ebmlife.nets.sngan import SNGANEnergy, SNGANGenerator

__all__ = ["PerceptronEnergy", "PerceptronGenerator", "SNGANEnergy", "SNGANGenerator"]
