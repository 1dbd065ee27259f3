"""A compiled path for the gradients of small convolutional networks on the CPU, with PyTorch as its fallback."""

from ebmlife.sampling.native.learning import WeightGradients
from ebmlife.sampling.native.program import Program
from ebmlife.sampling.native.steps import Unsupported

__all__ = ["Program", "Unsupported", "WeightGradients"]
