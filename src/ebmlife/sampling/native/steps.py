"""What a compiled program is made of."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from torch import Tensor

from ebmlife.sampling.native.taps import Band, Taps

Read = Callable[[], Tensor]  # reads weights of now


class Unsupported(Exception):
    """The network does something that there is no step for."""


class Op(IntEnum):  # `kind` in program.c
    CONVOLVE = 0
    MIX = 1
    PASS = 2
    FILL = 3
    REDUCE = 4
    GHOST = 5
    SPREAD = 6
    WEIGHTS = 7
    BIASES = 8


class Gating(IntEnum):  # as in program.c
    POSITIVE = 0
    LEAKY = 1
    FACTOR = 2


@dataclass(frozen=True)
class Activation:
    """f(x) of a result, as program.c knows it."""

    number: int = 0  # `activation` in program.c
    gating: Gating = Gating.POSITIVE  # how its backward pass gates a gradient
    parameter: float = 0.0
    epsilon: float = 0.0

    @property
    def keeps_derivative(self) -> bool:
        """Whether the forward pass keeps f'(x) for the backward pass, which needs no more than f(x) otherwise."""
        return self.gating is Gating.FACTOR


LINEAR, RELU = Activation(0), Activation(1)


def leaky_relu(slope: float) -> Activation:
    return Activation(2, Gating.LEAKY, slope) if slope > 0 else Activation(2, Gating.FACTOR, slope)


SILU = Activation(3, Gating.FACTOR)


def softplus(beta: float) -> Activation:
    return Activation(4, Gating.FACTOR, beta)


def soft_leaky_relu(alpha: float, epsilon: float) -> Activation:
    return Activation(5, Gating.FACTOR, alpha, epsilon)


SOFT_LEAKY_RELU: list[Callable[..., Tensor]] = []  # functions (x, alpha, epsilon), which PyTorch has no name for


@dataclass(frozen=True)
class Gate:
    """What a gradient is multiplied by on its way back through an activation."""

    map: str  # f(x), or f'(x)
    activation: Activation


@dataclass(frozen=True)
class Map:
    """A feature map."""

    pixels: int
    channels: int
    exact: bool = False  # float32 in a program of bfloat16 too
    width: int = 0  # pixels of a row; 0 where it is no image


@dataclass(frozen=True)
class Convolution:
    """What a step CONVOLVE is, where it is one of an image, or the backward pass of one."""

    source: tuple[int, int]  # height and width of the map that is read
    kernel: tuple[int, int]
    stride: int
    padding: int
    backward: bool


@dataclass
class Step:
    """One operation of program.c, its feature maps by name."""

    kind: Op
    source: str
    target: str
    pixels: int  # of the target that are written
    inputs: int
    outputs: int
    other: str | None = None
    gate: Gate | None = None
    activation: Activation = LINEAR
    derivative: str | None = None  # the map for f'
    taps: Taps | None = None
    places: int = 1  # in the kernel
    weight: Read | None = None  # (outputs, inputs, places of the network's own kernel)
    transform: Tensor | None = None  # (places, places of the network's own kernel); None: they are the same
    bias: Read | None = None
    first_pixel: int = 0  # of the target
    convolution: Convolution | None = None
    crossed: bool = False  # GHOST: the columns are the neighbors', not zeros
    learned: Read | None = None  # what WEIGHTS and BIASES are the gradient of, shaped as `weight`
    band: Band | None = None  # of WEIGHTS


@dataclass(frozen=True)
class Steps:
    steps: list[Step]
    input: str
    output: str  # the gradient's map; with gradients of weights, that of the factors of E(x)
    energy: str  # the map of E(x), of one pixel and channel
    maps: dict[str, Map]
    forget: Callable[[], None] = lambda: None  # what steps have computed of weights that changed
