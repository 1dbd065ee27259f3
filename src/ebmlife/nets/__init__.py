"""Networks."""

from ebmlife.nets.authors_resnet import AuthorsWideResNet
from ebmlife.nets.biggan import BigGANEnergy, BigGANGenerator
from ebmlife.nets.flat import FlatEnergy
from ebmlife.nets.perceptron import PerceptronEnergy, PerceptronGenerator
from ebmlife.nets.resnet import CIFARResNet, WideResNet
from ebmlife.nets.sngan import SNGANEnergy, SNGANGenerator

__all__ = [
    "AuthorsWideResNet",
    "BigGANEnergy",
    "BigGANGenerator",
    "CIFARResNet",
    "FlatEnergy",
    "PerceptronEnergy",
    "PerceptronGenerator",
    "SNGANEnergy",
    "SNGANGenerator",
    "WideResNet",
]
