"""Networks."""

from ebmlife.nets.glow import Glow, GlowGenerator
from ebmlife.nets.perceptron import PerceptronEnergy, PerceptronGenerator
from ebmlife.nets.resnet import CIFARResNet, WideResNet
from ebmlife.nets.score import ScoreNet
from ebmlife.nets.sngan import SNGANDiscriminator, SNGANEnergy, SNGANGenerator

__all__ = [
    "CIFARResNet",
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
