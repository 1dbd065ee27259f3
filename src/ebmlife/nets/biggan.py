"""BigGAN's discriminator as an energy, and the class-conditional BigGAN-deep generator.

The paper's authors wrap all layers in spectral normalization but call them in inference mode, which leaves the stored
weights unchanged: they are plain weights here.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ebmlife.errors import BadInput, at_least
from ebmlife.nets import activations
from ebmlife.nets.activations import Activation
from ebmlife.nets.sngan import conv, glorot

# Output width of each block in multiples of `width`, whether it halves the resolution, and the block that has
# self-attention in front of it.
_ENERGY: dict[int, tuple[list[int], list[bool], int]] = {
    64: ([1, 2, 2, 4, 4, 8, 8, 16, 16], [False, True] * 4 + [False], 1),
    128: ([2, 2, 4, 4, 8, 8, 16, 16, 16, 16], [True, False] * 5, 2),
    224: ([2, 2, 4, 4, 8, 8, 8, 8, 16, 16, 16, 16], [True, False] * 6, 4),
}
# The same for the generator. Every second block doubles the resolution from 4x4 up.
_GENERATOR: dict[int, list[int]] = {
    128: [16, 16, 16, 8, 8, 4, 4, 2, 2, 1],
    256: [16, 16, 16, 8, 8, 8, 8, 4, 4, 2, 2, 1],
}
_ATTENTION_AT = 8
_GROWN = {64: 128, 128: 128, 224: 256, 256: 256}  # size of the images before they are resized
_NARROWING = 4  # of the inner convolutions of a block
_BOTTOM = 4
_CUT = 2.0  # standard deviations: where latents are truncated
_EPSILON = 1e-4


def _check(size: int, width: int, sizes: Sequence[int]) -> None:
    if size not in sizes:
        raise BadInput(f"this BigGAN network exists for images of size {', '.join(map(str, sizes))}, not {size}")
    if width < 1 or width % 8:
        raise BadInput(f"width {width} does not fit BigGAN's networks: they need a positive multiple of 8")


class SelfAttention(nn.Module):
    """x + gamma * out(g(x) softmax(theta(x) . phi(x))), keys phi and values g max-pooled over 2x2 pixels.

    gamma is initialized to 0, so that attention is learned (the authors' is random, as Keras does by default).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.theta = conv(width, width // 8, 1, bias=False)
        self.phi = conv(width, width // 8, 1, bias=False)
        self.g = conv(width, width // 2, 1, bias=False)
        self.out = conv(width // 2, width, 1, bias=False)
        self.gamma = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        queries = self.theta(x).flatten(2)  # (B, C / 8, H W)
        keys = F.max_pool2d(self.phi(x), 2).flatten(2)  # (B, C / 8, H W / 4)
        values = F.max_pool2d(self.g(x), 2).flatten(2)  # (B, C / 2, H W / 4)
        weights = torch.softmax(queries.mT @ keys, dim=-1)  # (B, H W, H W / 4)
        attended: Tensor = self.out((values @ weights.mT).view(len(x), -1, *x.shape[2:]))
        return x + self.gamma * attended


class EnergyBlock(nn.Module):
    """Four convolutions through a bottleneck, plus x with additional channels; 2x2 means of both if `down`."""

    def __init__(self, inputs: int, outputs: int, *, down: bool, activation: Activation = F.relu) -> None:
        super().__init__()
        self._activation = activation
        inner = inputs // _NARROWING
        self.conv_0 = conv(inputs, inner, 1)
        self.conv_1 = conv(inner, inner, 3)
        self.conv_2 = conv(inner, inner, 3)
        self.conv_3 = conv(inner, outputs, 1)
        self.sc = conv(inputs, outputs - inputs, 1) if outputs != inputs else None
        self.down = down

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.conv_0(self._activation(x))
        h = self.conv_1(self._activation(h))
        h = self._activation(self.conv_2(self._activation(h)))
        if self.down:
            h, x = F.avg_pool2d(h, 2), F.avg_pool2d(x, 2)
        h = self.conv_3(h)
        x = x if self.sc is None else torch.cat([x, self.sc(x)], 1)
        return h + x


class BigGANEnergy(nn.Module):
    """U(x) = w . mean over pixels of f(layers(stem(x))): (B, C, size, size) -> (B,).

    Args:
        size: Height and width of the images: 64, 128 or 224.
        width: Number of channels after the stem.
        channels: Number of channels of the images.
        activation: The function f: "relu", "leaky-relu", "silu", "softplus" or "soft-leaky-relu".
    """

    def __init__(self, size: int = 128, width: int = 48, channels: int = 3, activation: str = "relu") -> None:
        super().__init__()
        self._activation = activations.activation(activation)
        if activation != "relu":  # fingerprints contain this attribute, and those of ReLU networks are older than it
            self.activation = activation
        _check(size, width, tuple(_ENERGY))
        multiples, downs, attention_at = _ENERGY[size]
        widths = [width, *(width * multiple for multiple in multiples)]
        layers: list[nn.Module] = [
            EnergyBlock(a, b, down=down, activation=self._activation)
            for (a, b), down in zip(pairwise(widths), downs, strict=True)
        ]
        layers.insert(attention_at, SelfAttention(widths[attention_at]))
        self.stem = conv(channels, width, 3)
        self.layers = nn.Sequential(*layers)
        self.linear = nn.Linear(widths[-1], 1, bias=False)
        self.apply(glorot)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.linear(self._activation(self.layers(self.stem(x))).mean((2, 3)))
        return h.squeeze(1)


class Standardized(nn.Module):
    """(x - mean) / sqrt(variance + 1e-4), both recorded for evenly spaced truncations from 0 to 1."""

    means: Tensor
    variances: Tensor

    def __init__(self, width: int, statistics: int) -> None:
        super().__init__()
        self.register_buffer("means", torch.zeros(statistics, width))
        self.register_buffer("variances", torch.ones(statistics, width))

    def forward(self, x: Tensor, truncation: float) -> Tensor:
        mean, variance = (_between(records, truncation)[:, None, None] for records in (self.means, self.variances))
        return (x - mean) / (variance + _EPSILON).sqrt()


def _between(records: Tensor, truncation: float) -> Tensor:
    """Interpolates linearly between records. (The published code swaps the weights, which is equal at the records.)"""
    place = round(truncation * (len(records) - 1), 6)  # 0.58 * 50 is not quite 29
    below = min(int(place), len(records) - 2)
    return torch.lerp(records[below], records[below + 1], place - below)


class ConditionalNorm(nn.Module):
    """standardized(x) * (1 + scale(condition)) + offset(condition)."""

    def __init__(self, width: int, condition: int, statistics: int) -> None:
        super().__init__()
        self.standardised = Standardized(width, statistics)
        self.scale = nn.Linear(condition, width, bias=False)
        self.offset = nn.Linear(condition, width, bias=False)

    def forward(self, x: Tensor, condition: Tensor, truncation: float) -> Tensor:
        scale, offset = self.scale(condition)[..., None, None], self.offset(condition)[..., None, None]
        h: Tensor = self.standardised(x, truncation) * (1 + scale) + offset
        return h


class GeneratorBlock(nn.Module):
    """Four normalized convolutions through a bottleneck, plus the first channels of x; both twice as large if `up`."""

    def __init__(self, inputs: int, outputs: int, *, up: bool, condition: int, statistics: int) -> None:
        super().__init__()
        inner = inputs // _NARROWING
        self.norms = nn.ModuleList(
            ConditionalNorm(width, condition, statistics) for width in (inputs, inner, inner, inner)
        )
        self.conv_0 = conv(inputs, inner, 1)
        self.conv_1 = conv(inner, inner, 3)
        self.conv_2 = conv(inner, inner, 3)
        self.conv_3 = conv(inner, outputs, 1)
        self.outputs, self.up = outputs, up

    def forward(self, x: Tensor, condition: Tensor, truncation: float) -> Tensor:
        def activated(number: int, h: Tensor) -> Tensor:
            return F.relu(self.norms[number](h, condition, truncation))

        h: Tensor = activated(1, self.conv_0(activated(0, x)))
        x = x[:, : self.outputs]
        if self.up:
            h, x = F.interpolate(h, scale_factor=2), F.interpolate(x, scale_factor=2)
        h = self.conv_2(activated(2, self.conv_1(h)))
        h = self.conv_3(activated(3, h))
        return h + x


class BigGANGenerator(nn.Module):
    """g(z): (B, noise + 1) -> (B, C, size, size) in [-1, 1], of a class that the last coordinate of z chooses.

    With z ~ N(0, I) the class is uniform and the latents are truncation * N(0, I) cut at two standard deviations, as
    in BigGAN: z is mapped there by its distribution function. 64 and 224 are resized from 128 and 256, as the
    paper's authors do.
    """

    def __init__(
        self,
        size: int = 128,
        width: int = 128,
        channels: int = 3,
        noise: int = 128,
        classes: int = 1000,
        truncation: float = 1.0,
        statistics: int = 51,  # truncations for which batch statistics are recorded
    ) -> None:
        super().__init__()
        _check(size, width, tuple(_GROWN))
        at_least(1, "generator", noise=noise, classes=classes)
        at_least(2, "generator", statistics=statistics)
        if not 0 < truncation <= 1:
            raise BadInput(f"generator.truncation must be above 0 and at most 1, got {truncation}")
        self.size, self.classes, self.truncation, self.latent = size, classes, truncation, noise + 1
        multiples = _GENERATOR[_GROWN[size]]
        widths = [16 * width, *(width * multiple for multiple in multiples)]
        layers: list[nn.Module] = [
            GeneratorBlock(a, b, up=i % 2 == 1, condition=2 * noise, statistics=statistics)
            for i, (a, b) in enumerate(pairwise(widths))
        ]
        layers.insert(_ATTENTION_AT, SelfAttention(widths[_ATTENTION_AT]))
        self.embedding = nn.Embedding(classes, noise)
        self.linear = nn.Linear(2 * noise, widths[0] * _BOTTOM**2)
        self.layers = nn.ModuleList(layers)
        self.norm = Standardized(width, statistics)
        self.scale, self.offset = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.conv = conv(width, channels, 3)
        self.apply(glorot)

    def forward(self, z: Tensor) -> Tensor:
        return self.images(self.truncation * truncated(z[:, :-1]), self.chosen(z[:, -1]))

    def chosen(self, z: Tensor) -> Tensor:
        """(B,) normal numbers -> (B,) classes, all equally probable."""
        place: Tensor = torch.special.ndtr(z) * self.classes
        return place.long().clamp(0, self.classes - 1)

    def images(self, noise: Tensor, classes: Tensor) -> Tensor:
        """Returns images (B, C, size, size) of these classes (B,) from truncated noise (B, noise)."""
        condition = torch.cat([noise, self.embedding(classes)], 1)
        h = self.linear(condition).view(len(noise), _BOTTOM, _BOTTOM, -1).permute(0, 3, 1, 2)  # published channels-last
        for layer in self.layers:
            h = layer(h, condition, self.truncation) if isinstance(layer, GeneratorBlock) else layer(h)
        h = self.norm(h, self.truncation) * self.scale[:, None, None] + self.offset[:, None, None]
        x = torch.tanh(self.conv(F.relu(h)))
        if x.shape[-1] == self.size:
            return x
        return F.interpolate(x, size=self.size, mode="bilinear", align_corners=False)


def truncated(z: Tensor) -> Tensor:
    """Maps N(0, 1) to N(0, 1) cut at two standard deviations: t with P(T < t) = P(Z < z)."""
    low, high = torch.special.ndtr(z.new_tensor([-_CUT, _CUT]))
    cut: Tensor = torch.special.ndtri(low + torch.special.ndtr(z) * (high - low))
    return cut.clamp(-_CUT, _CUT)
