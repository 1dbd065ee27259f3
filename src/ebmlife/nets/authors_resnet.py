"""The WideResNet of the paper's authors, which differs slightly from the published one."""

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from ebmlife.errors import at_least


class Block(nn.Module):
    """conv(relu(norm(conv(relu(norm(x)))))) + shortcut(x), the second convolution with the stride."""

    def __init__(self, inputs: int, outputs: int, *, stride: int) -> None:
        super().__init__()
        self.bn_1, self.conv_1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.bn_2, self.conv_2 = nn.BatchNorm2d(outputs), nn.Conv2d(outputs, outputs, 3, stride=stride, padding=1)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.conv_2(F.relu(self.bn_2(self.conv_1(F.relu(self.bn_1(x))))))
        x = self.shortcut(x)
        return h + x


class AuthorsWideResNet(nn.Module):
    """WideResNet-(6 blocks + 4)-widen: (B, channels, H, W) in [-1, 1] -> logits (B, classes).

    Unlike in `WideResNet`, all convolutions have biases, a block's second convolution halves the resolution, and
    shortcuts apply to x instead of relu(norm(x)).
    """

    def __init__(self, blocks: int = 4, widen: int = 10, classes: int = 10, channels: int = 3) -> None:
        super().__init__()
        at_least(1, "net", blocks=blocks, widen=widen, classes=classes)
        self.classes, self.channels = classes, channels
        widths = [16, 16 * widen, 32 * widen, 64 * widen]
        self.conv = nn.Conv2d(channels, widths[0], 3, padding=1)
        self.stages = nn.ModuleList(
            nn.Sequential(
                Block(inputs, outputs, stride=2 if stage else 1),
                *(Block(outputs, outputs, stride=1) for _ in range(blocks - 1)),
            )
            for stage, (inputs, outputs) in enumerate(pairwise(widths))
        )
        self.bn, self.linear = nn.BatchNorm2d(widths[-1]), nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv(x)
        for stage in self.stages:
            h = stage(h)
        logits: Tensor = self.linear(F.relu(self.bn(h)).mean((2, 3)))
        return logits
