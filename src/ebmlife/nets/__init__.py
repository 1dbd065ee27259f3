"""Networks."""

from ebmlife.nets.perceptron import PerceptronEnergy, PerceptronGenerator
from ebmlife.nets.resnet import CIFARResNet, WideResNet
from ebmlife.nets.sngan import SNGANEnergy, SNGANGenerator

__all__ = [
    "CIFARResNet",
    "PerceptronEnergy",
    "PerceptronGenerator",
    "SNGANEnergy",
    "SNGANGenerator",
    "WideResNet",
]
