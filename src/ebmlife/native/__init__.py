"""A compiled path for the gradient of small ReLU networks on the CPU, with PyTorch as its fallback."""

from ebmlife.native.program import Program
from ebmlife.native.steps import Unsupported

__all__ = ["Program", "Unsupported"]
