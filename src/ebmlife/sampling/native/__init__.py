"""A compiled path for the gradient of small ReLU networks on the CPU, with PyTorch as its fallback."""

from ebmlife.sampling.native.program import Program
from ebmlife.sampling.native.steps import Unsupported

__all__ = ["Program", "Unsupported"]
