"""Residual classifiers for small images: WideResNet, and the ResNet of the CIFAR-10 experiments of He et al."""

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from ebmlife.errors import BadInput, at_least

_STAGES = 3  # each after the first halves the resolution and doubles the width


def _blocks_of_a_stage(depth: int, *, layers: int, outside: int, name: str) -> int:
    """Number of blocks of two convolutions per stage: depth = 3 stages * 2 * blocks + layers outside of blocks."""
    blocks, rest = divmod(depth - outside, layers)
    if blocks < 1 or rest:
        raise BadInput(f"a {name} has a depth of {layers} n + {outside}, n at least 1, not {depth}")
    return blocks


def _conv(inputs: int, outputs: int, *, kernel: int = 3, stride: int = 1) -> nn.Conv2d:
    conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv


class WideBlock(nn.Module):
    """conv(drop(relu(norm(conv(relu(norm(x))))))) + x; where width or resolution change, the shortcut is a 1x1
    convolution of relu(norm(x))."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), _conv(inputs, outputs, stride=stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(outputs), _conv(outputs, outputs)
        self.dropout = nn.Dropout(dropout)
        same = inputs == outputs and stride == 1
        self.shortcut = None if same else _conv(inputs, outputs, kernel=1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.bn1(x))
        h: Tensor = self.conv2(self.dropout(F.relu(self.bn2(self.conv1(active)))))
        return h + (x if self.shortcut is None else self.shortcut(active))


class WideResNet(nn.Module):
    """WideResNet-depth-widen (Zagoruyko and Komodakis): (B, channels, H, W) -> logits (B, classes), any H and W."""

    def __init__(
        self, depth: int = 28, widen: int = 10, classes: int = 10, channels: int = 3, dropout: float = 0.0
    ) -> None:
        super().__init__()
        at_least(1, "net", widen=widen, classes=classes)
        count = _blocks_of_a_stage(depth, layers=2 * _STAGES, outside=4, name="WideResNet")
        self.classes, self.channels = classes, channels
        widths = [16, *(16 * widen * 2**stage for stage in range(_STAGES))]
        self.conv = _conv(channels, widths[0])
        blocks = []
        for stage, (inputs, outputs) in enumerate(pairwise(widths)):
            blocks.append(WideBlock(inputs, outputs, stride=2 if stage else 1, dropout=dropout))
            blocks += [WideBlock(outputs, outputs, stride=1, dropout=dropout) for _ in range(count - 1)]
        self.blocks = nn.Sequential(*blocks)
        self.bn, self.linear = nn.BatchNorm2d(widths[-1]), nn.Linear(widths[-1], classes)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.linear(F.relu(self.bn(self.blocks(self.conv(x)))).mean((2, 3)))
        return logits


class PlainBlock(nn.Module):
    """relu(norm(conv(relu(norm(conv(x))))) + x). Where the width doubles, the shortcut takes every second pixel and is
    padded with channels of zeros on both sides (option A)."""

    def __init__(self, inputs: int, outputs: int, *, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = _conv(inputs, outputs, stride=stride), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = _conv(outputs, outputs), nn.BatchNorm2d(outputs)
        self.stride, self.missing = stride, outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.missing:
            before = self.missing // 2
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, before, self.missing - before))
        return F.relu(h + x)


class CIFARResNet(nn.Module):
    """ResNet-20 and others of depth 6 n + 2: (B, channels, H, W) -> logits (B, classes), any H and W.

    The names of its weights are those of akamaster/pytorch_resnet_cifar10, whose trained weights can be loaded.
    """

    def __init__(self, depth: int = 20, width: int = 16, classes: int = 10, channels: int = 3) -> None:
        super().__init__()
        at_least(1, "net", width=width, classes=classes)
        count = _blocks_of_a_stage(depth, layers=2 * _STAGES, outside=2, name="CIFAR ResNet")
        self.classes, self.channels = classes, channels
        self.conv1, self.bn1 = _conv(channels, width), nn.BatchNorm2d(width)
        self.layer1 = self._stage(width, width, count, stride=1)
        self.layer2 = self._stage(width, 2 * width, count, stride=2)
        self.layer3 = self._stage(2 * width, 4 * width, count, stride=2)
        self.linear = nn.Linear(4 * width, classes)

    @staticmethod
    def _stage(inputs: int, outputs: int, count: int, *, stride: int) -> nn.Sequential:
        rest = (PlainBlock(outputs, outputs, stride=1) for _ in range(count - 1))
        return nn.Sequential(PlainBlock(inputs, outputs, stride=stride), *rest)

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x))))))
        logits: Tensor = self.linear(h.mean((2, 3)))
        return logits
