import pytest
import torch
from torch import nn

from ebmlife.errors import BadInput
from ebmlife.nets import CIFARResNet, WideResNet
from ebmlife.nets.resnet import PlainBlock, WideBlock


def parameters(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def test_the_networks_have_the_sizes_that_are_published() -> None:
    """WideResNet-28-10: 36.5 M, 16-4: 2.75 M; ResNet-20: 0.27 M, 56: 0.85 M (no weights in option-A shortcuts)."""
    with torch.device("meta"):
        assert parameters(WideResNet()) == 36_479_194
        assert parameters(WideResNet(depth=16, widen=4)) == 2_748_890
        assert parameters(CIFARResNet()) == 269_722
        assert parameters(CIFARResNet(depth=56)) == 853_018
    convolutions = [m for m in WideResNet(10, 1).modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(convolutions) == 10 - 3  # depth counts these, the linear layer and two of the shortcuts


@pytest.mark.parametrize("net", [WideResNet(10, 1, classes=7, channels=1), CIFARResNet(8, 4, classes=7, channels=1)])
@pytest.mark.parametrize("size", [8, 13, 32])
def test_any_size_of_image_gives_logits(net: nn.Module, size: int) -> None:
    assert net.eval()(torch.randn(2, 1, size, size)).shape == (2, 7)


def test_the_shortcut_of_option_a_takes_every_second_pixel_between_zeros() -> None:
    block = PlainBlock(2, 4, stride=2).eval()
    nn.init.zeros_(block.conv2.weight)  # then only the shortcut is left
    x = torch.rand(1, 2, 4, 4)
    expected = torch.zeros(1, 4, 2, 2)
    expected[:, 1:3] = x[:, :, ::2, ::2]
    torch.testing.assert_close(block(x), expected)


def test_a_wide_block_without_change_of_shape_has_the_identity_as_shortcut() -> None:
    block = WideBlock(3, 3, stride=1, dropout=0.0).eval()
    nn.init.zeros_(block.conv2.weight)
    x = torch.randn(1, 3, 4, 4)
    torch.testing.assert_close(block(x), x)
    assert WideBlock(3, 6, stride=2, dropout=0.0)(x.repeat(2, 1, 1, 1)).shape == (2, 6, 2, 2)


def test_depths_that_do_not_exist_are_named() -> None:
    with pytest.raises(BadInput, match=r"WideResNet has a depth of 6 n \+ 4, n at least 1, not 20"):
        WideResNet(depth=20)
    with pytest.raises(BadInput, match=r"CIFAR ResNet has a depth of 6 n \+ 2, n at least 1, not 2"):
        CIFARResNet(depth=2)
