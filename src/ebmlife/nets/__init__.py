"""Networks."""

from ebmlife.nets.authors_resnet import AuthorsWideResNet
from ebmlife.nets.biggan import BigGANEnergy, BigGANGenerator
from ebmlife.nets.flat import FlatEnergy
from ebmlife.nets.glow import Glow, GlowGenerator
from ebmlife.nets.perceptron import PerceptronEnergy, PerceptronGenerator
from ebmlife.nets.resnet import CIFARResNet, WideResNet
from ebmlife.nets.score import ScoreNet
from ebmlife.nets.sngan import SNGANDiscriminator, SNGANEnergy, SNGANGenerator

__all__ = [
    "AuthorsWideResNet",
    "BigGANEnergy",
    "BigGANGenerator",
    "CIFARResNet",
    "FlatEnergy",
    "Glow",
    "GlowGenerator",
    "PerceptronEnergy",
    "PerceptronGenerator",
    "SNGANDiscriminator",
    "SNGANEnergy",
    "SNGANGenerator",
    "ScoreNet",
    "WideResNet",
]
