"""What a compiled program is made of."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from torch import Tensor

from ebmlife.native.taps import Taps


class Unsupported(Exception):
    """The network does something that there is no step for."""


class Kind(IntEnum):  # as in program.c
    CONVOLVE = 0
    QUARTER = 1
    PASS = 2
    FILL = 3


@dataclass
class Step:
    """One operation of program.c, its feature maps by name."""

    kind: Kind
    source: str
    target: str
    pixels: int  # of the target
    inputs: int
    outputs: int
    other: str | None = None
    mask: str | None = None
    rectify: bool = False
    taps: Taps | None = None
    places: int = 1  # in the kernel
    weight: Callable[[], Tensor] | None = None  # (outputs, inputs, places)
    bias: Callable[[], Tensor] | None = None


@dataclass(frozen=True)
class Steps:
    steps: list[Step]
    input: str
    output: str  # the gradient's map
    sizes: dict[str, int]  # pixels * channels of each map
