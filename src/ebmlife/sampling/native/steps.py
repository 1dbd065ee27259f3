"""What a compiled program is made of."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from torch import Tensor

from ebmlife.sampling.native.taps import Taps


class Unsupported(Exception):
    """The network does something that there is no step for."""


class Kind(IntEnum):  # as in program.c
    CONVOLVE = 0
    MIX = 1
    PASS = 2
    FILL = 3


@dataclass(frozen=True)
class Convolution:
    """What a step of kind CONVOLVE is, where it is one of an image, or the backward pass of one."""

    source: tuple[int, int]  # height and width of the map that is read
    kernel: tuple[int, int]
    stride: int
    padding: int
    backward: bool


@dataclass
class Step:
    """One operation of program.c, its feature maps by name."""

    kind: Kind
    source: str
    target: str
    pixels: int  # of the target that are written
    inputs: int
    outputs: int
    other: str | None = None
    mask: str | None = None
    rectify: bool = False
    taps: Taps | None = None
    places: int = 1  # in the kernel
    weight: Callable[[], Tensor] | None = None  # (outputs, inputs, places of the network's own kernel)
    transform: Tensor | None = None  # (places, places of the network's own kernel); None: they are the same
    bias: Callable[[], Tensor] | None = None
    first_pixel: int = 0  # of the target
    convolution: Convolution | None = None


@dataclass(frozen=True)
class Steps:
    steps: list[Step]
    input: str
    output: str  # the gradient's map
    sizes: dict[str, int]  # pixels * channels of each map
