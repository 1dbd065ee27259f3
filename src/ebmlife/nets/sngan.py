"""The SNGAN discriminator without normalization as an energy, the discriminator itself, and the SNGAN generator.

Block widths, and which blocks change the resolution, are the paper's for 32, 64 and 128; 8, 16 and 28 are smaller
versions of 32. Weights are initialized Glorot-uniform with zero biases, as in the authors' code. Images and features
are stored channels-last, which makes a training pass a quarter faster.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

from ebmlife.errors import BadInput, at_least
from ebmlife.nets import activations
from ebmlife.nets.activations import Activation

# Output width of each block as a fraction of `width`, and whether the block halves the resolution.
_ENERGY: dict[int, list[tuple[float, bool]]] = {
    8: [(1, True), (1, False), (1, False)],
    16: [(1, True), (1, True), (1, False), (1, False)],
    28: [(1, True), (1, True), (1, False), (1, False)],
    32: [(1, True), (1, True), (1, False), (1, False)],
    64: [(1 / 16, True), (1 / 8, True), (1 / 4, True), (1 / 2, True), (1, True)],
    128: [(1 / 16, True), (1 / 8, True), (1 / 4, True), (1 / 2, True), (1, True), (1, False)],
}
# Output width of each block, all of which double the resolution, from 4x4 up, or from 7x7 to 28x28.
_GENERATOR: dict[int, list[float]] = {
    8: [1],
    16: [1, 1],
    28: [1, 1],
    32: [1, 1, 1],
    64: [1 / 2, 1 / 4, 1 / 8, 1 / 16],
    128: [1, 1 / 2, 1 / 4, 1 / 8, 1 / 16],
}
SIZES = tuple(_ENERGY)
_EPSILON = 1e-3  # of batch norm, as in Keras


def _check(size: int, width: int, fractions: Sequence[float]) -> None:
    if size not in SIZES:
        raise BadInput(f"SNGAN networks exist for images of size {', '.join(map(str, SIZES))}, not {size}")
    smallest = min(fractions)
    if width < 1 or (width * smallest) % 1:
        step = round(1 / smallest)
        raise BadInput(f"width {width} does not fit size {size}: its blocks need a positive multiple of {step}")


def conv(inputs: int, outputs: int, kernel: int, *, bias: bool = True) -> nn.Conv2d:
    """Returns a convolution that keeps the resolution."""
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=bias)


def glorot(module: nn.Module) -> None:
    """Initializes weights as Keras does, for `apply`."""
    if isinstance(module, nn.Conv2d | nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


class EnergyBlock(nn.Module):
    """conv(f(conv(f(x)))) + shortcut(x), both averaged over 2x2 pixels if `down`; the stem has no f in front.

    The pool is applied before the shortcut's 1x1 convolution, with which it commutes, and is merged with the second 3x3
    convolution. This takes a quarter and less than half of their operations.
    """

    def __init__(
        self, inputs: int, outputs: int, *, down: bool, stem: bool = False, activation: Activation = F.relu
    ) -> None:
        super().__init__()
        self._activation = activation
        self.conv_1 = conv(inputs, outputs, 3)
        self.conv_2 = conv(outputs, outputs, 3)
        self.sc = conv(inputs, outputs, 1) if down or inputs != outputs else nn.Identity()
        self.down, self.stem = down, stem

    def forward(self, x: Tensor) -> Tensor:
        h = self._activation(self.conv_1(x if self.stem else self._activation(x)))
        if self.down:
            h, x = pooled_conv(h, self.conv_2), F.avg_pool2d(x, 2)
        else:
            h = self.conv_2(h)
        x = self.sc(x)
        return h + x


def pooled_conv(x: Tensor, conv: nn.Conv2d) -> Tensor:
    """avg_pool2d(conv(x), 2) of a 3x3 convolution as one 4x4 convolution of stride 2, exactly.

    A mean over 2x2 outputs is one output of the mean of the four shifted kernels: 16 products where there were 36.
    """
    kernel = F.avg_pool2d(F.pad(conv.weight, (1, 1, 1, 1)), 2, stride=1)
    return F.conv2d(x, kernel, conv.bias, stride=2, padding=1)


class SNGANEnergy(nn.Module):
    """U(x) = w . mean over pixels of f(blocks(x)): (B, C, size, size) -> (B,).

    Args:
        size: Height and width of the images: 8, 16, 28, 32, 64 or 128.
        width: Number of channels of the widest block.
        channels: Number of channels of the images.
        activation: The function f: "relu", "leaky-relu", "silu", "softplus" or "soft-leaky-relu".
    """

    def __init__(self, size: int = 32, width: int = 256, channels: int = 3, activation: str = "relu") -> None:
        super().__init__()
        self._activation = activations.activation(activation)
        if activation != "relu":  # fingerprints contain this attribute, and those of ReLU networks are older than it
            self.activation = activation
        layout = _ENERGY.get(size, [])
        _check(size, width, [fraction for fraction, _ in layout] or [1])
        widths = [channels, *(round(width * fraction) for fraction, _ in layout)]
        self.blocks = nn.Sequential(
            *(
                EnergyBlock(inputs, outputs, down=down, stem=i == 0, activation=self._activation)
                for i, ((inputs, outputs), (_, down)) in enumerate(zip(pairwise(widths), layout, strict=True))
            )
        )
        self.linear = nn.Linear(widths[-1], 1, bias=False)
        self.apply(glorot)

    def forward(self, x: Tensor) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        h: Tensor = self.linear(self._activation(self.blocks(x)).mean((2, 3)))
        return h.squeeze(1)


class SNGANDiscriminator(nn.Module):
    """D(x) = w . sum over pixels of relu(blocks(x)) + b, every layer's weight divided by its largest singular value.

    It has the energy's blocks, and SNGAN's sum in place of the energy's mean: with a mean, a network whose layers are
    Lipschitz could not reach the margins of the hinge loss.

    Args:
        size: Height and width of the images: 8, 16, 28, 32, 64 or 128.
        width: Number of channels of the widest block.
        channels: Number of channels of the images.
    """

    def __init__(self, size: int = 32, width: int = 128, channels: int = 3) -> None:
        super().__init__()
        energy = SNGANEnergy(size, width, channels)
        self.blocks, self.linear = energy.blocks, nn.Linear(energy.linear.in_features, 1)
        glorot(self.linear)
        for module in list(self.modules()):
            if isinstance(module, nn.Conv2d | nn.Linear):
                spectral_norm(module)

    def forward(self, x: Tensor) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        h: Tensor = self.linear(F.relu(self.blocks(x)).sum((2, 3)))
        return h.squeeze(1)


class GeneratorBlock(nn.Module):
    """Doubles the resolution: conv(relu(norm(conv(up(relu(norm(x))))))) + sc(up(x))."""

    def __init__(self, inputs: int, outputs: int, *, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.norm_1 = norm(inputs)
        self.conv_1 = conv(inputs, outputs, 3)
        self.norm_2 = norm(outputs)
        self.conv_2 = conv(outputs, outputs, 3)
        self.sc = conv(inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.conv_1(_up(F.relu(self.norm_1(x))))
        h = self.conv_2(F.relu(self.norm_2(h)))
        x = self.sc(_up(x))
        return h + x


class ScaleAndOffset(nn.Module):
    """scale * x / sqrt(1 + epsilon) + offset, learned for each channel: batch norm in inference mode with means of 0
    and variances of 1."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = x * (self.weight / (1 + _EPSILON) ** 0.5)[:, None, None] + self.bias[:, None, None]
        return h


class SNGANGenerator(nn.Module):
    """g(z): (B, latent) -> (B, C, size, size) in [-1, 1].

    Args:
        size: Height and width of the images: 8, 16, 28, 32, 64 or 128.
        width: Number of channels of the widest block.
        channels: Number of channels of the images.
        latent: Number of latents.
        batch_norm: Whether layers have batch normalization.
        batch_norm_momentum: Share of a new batch in the running statistics.
        scale_and_offset: A learned scale and offset in place of batch norm, as in the code of the paper's authors.
    """

    def __init__(
        self,
        size: int = 32,
        width: int = 256,
        channels: int = 3,
        latent: int = 128,
        batch_norm: bool = True,
        batch_norm_momentum: float = 0.1,
        scale_and_offset: bool = False,
    ) -> None:
        super().__init__()
        fractions = _GENERATOR.get(size, [1])
        if not 0 < batch_norm_momentum <= 1:
            raise BadInput(f"generator.batch_norm_momentum must be above 0 and at most 1, got {batch_norm_momentum}")
        if batch_norm and scale_and_offset:
            raise BadInput(
                "generator.scale_and_offset replaces batch norm, which has its own scale and offset; use one of them"
            )
        norm = partial(_norm, batch_norm=batch_norm, momentum=batch_norm_momentum, scale_and_offset=scale_and_offset)
        at_least(1, "generator", latent=latent)
        _check(size, width, fractions)
        widths = [width, *(round(width * fraction) for fraction in fractions)]
        self.latent = latent
        self._bottom = size >> len(fractions)  # the first feature maps are 4x4, or 7x7 for size 28
        self.linear = nn.Linear(latent, width * self._bottom**2)
        self.blocks = nn.Sequential(*(GeneratorBlock(a, b, norm=norm) for a, b in pairwise(widths)))
        self.norm = norm(widths[-1])
        self.conv = conv(widths[-1], channels, 3)
        self.apply(glorot)

    def forward(self, z: Tensor) -> Tensor:
        h = self.linear(z).view(len(z), -1, self._bottom, self._bottom)
        h = self.blocks(h.contiguous(memory_format=torch.channels_last))
        return torch.tanh(self.conv(F.relu(self.norm(h))))


def _norm(width: int, *, batch_norm: bool, momentum: float, scale_and_offset: bool) -> nn.Module:
    if batch_norm:
        return nn.BatchNorm2d(width, eps=_EPSILON, momentum=momentum)
    return ScaleAndOffset(width) if scale_and_offset else nn.Identity()


def _up(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
