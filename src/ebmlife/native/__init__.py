"""A compiled path for the gradient of small ReLU networks on the CPU, with PyTorch as its fallback."""

from ebmlife.native.lowering import Unsupported
from ebmlife.native.program import Program, fingerprint

__all__ = ["Program", "Unsupported", "fingerprint"]
