from itertools import pairwise

import pytest
import torch

from ebmlife.bench.cases import plain_energy
from ebmlife.errors import BadInput
from ebmlife.nets import (
    BigGANEnergy,
    BigGANGenerator,
    PerceptronEnergy,
    PerceptronGenerator,
    SNGANEnergy,
    SNGANGenerator,
)
from ebmlife.nets.biggan import SelfAttention, Standardized, truncated
from ebmlife.nets.sngan import SIZES


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("channels", [1, 3])
def test_sngan_shapes(size: int, channels: int) -> None:
    width = 4 if size <= 32 else 16
    z = torch.randn(2, 5)
    x = SNGANGenerator(size, width, channels, latent=5)(z)
    assert x.shape == (2, channels, size, size)
    assert x.abs().max() <= 1
    assert SNGANEnergy(size, width, channels)(x).shape == (2,)


def parameters(net: torch.nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def test_the_papers_networks_have_the_papers_layers() -> None:
    """Counted by hand from the layer table of SNGAN: 3x3 pairs and 1x1 shortcuts of each block, then the head."""

    def block(a: int, b: int, shortcut: bool) -> int:
        return 9 * a * b + b + 9 * b * b + b + (a * b + b if shortcut else 0)

    of_32 = block(3, 256, True) + block(256, 256, True) + 2 * block(256, 256, False) + 256
    assert parameters(SNGANEnergy(size=32, width=256, channels=3)) == of_32
    widths = [3, 64, 128, 256, 512, 1024]
    of_64 = sum(block(a, b, True) for a, b in pairwise(widths)) + 1024
    assert parameters(SNGANEnergy(size=64, width=1024, channels=3)) == of_64
    with torch.device("meta"):
        assert parameters(SNGANEnergy(size=128, width=1024, channels=3)) == of_64 + block(1024, 1024, False)

    def up(a: int, b: int) -> int:
        return block(a, b, True) + 2 * a + 2 * b  # two batch norms

    generator = SNGANGenerator(size=32, width=256, channels=3, latent=128, batch_norm=True)
    head = 2 * 256 + 9 * 256 * 3 + 3
    assert parameters(generator) == 129 * 256 * 16 + 3 * up(256, 256) + head


@pytest.mark.parametrize("size", SIZES)
def test_folded_pools_change_neither_energies_nor_gradients(size: int) -> None:
    torch.manual_seed(0)
    net = SNGANEnergy(size=size, width=16).double()
    for parameter in net.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)  # biases too
    x = torch.randn(2, 3, size, size, dtype=torch.float64, requires_grad=True)
    inputs = [x, *net.parameters()]
    ours, theirs = net(x), plain_energy(net)(x)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    for a, b in zip(*(torch.autograd.grad(e.sum(), inputs) for e in (ours, theirs)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


def test_batch_norm_is_there_or_not() -> None:
    has = [
        any(isinstance(m, torch.nn.BatchNorm2d) for m in SNGANGenerator(8, 4, batch_norm=b).modules()) for b in (0, 1)
    ]
    assert has == [False, True]


@pytest.mark.parametrize(
    ("size", "width", "message"),
    [(10, 8, "8, 16, 28, 32, 64, 128, not 10"), (64, 24, "multiple of 16"), (8, 0, "width 0")],
)
def test_sizes_and_widths_that_do_not_exist(size: int, width: int, message: str) -> None:
    for net in (SNGANEnergy, SNGANGenerator):
        with pytest.raises(BadInput, match=message):
            net(size=size, width=width)


def test_perceptrons() -> None:
    x = PerceptronGenerator(shape=(2,), width=8, latent=3)(torch.randn(5, 3))
    assert x.shape == (5, 2)
    assert PerceptronEnergy(shape=(2,), width=8)(x).shape == (5,)


@pytest.mark.parametrize("size", [64, 128, 224])
def test_biggan_energy_shapes(size: int) -> None:
    net = BigGANEnergy(size=size, width=8)
    assert net(torch.zeros(2, 3, size, size)).shape == (2,)


def test_the_papers_biggan_energy_has_its_layers() -> None:
    """Counted by hand: four convolutions of a bottleneck and the new channels of each block, attention, stem, head."""

    def block(a: int, b: int) -> int:
        inner = a // 4
        main = a * inner + inner + 2 * (9 * inner * inner + inner) + inner * b + b
        return main + (a * (b - a) + (b - a) if b != a else 0)

    def attention(width: int) -> int:
        return 2 * width * width // 8 + 2 * width * width // 2 + 1

    widths = [48 * multiple for multiple in (1, 2, 2, 4, 4, 8, 8, 8, 8, 16, 16, 16, 16)]
    of_224 = 27 * 48 + 48 + sum(block(a, b) for a, b in pairwise(widths)) + attention(4 * 48) + 16 * 48
    with torch.device("meta"):
        assert parameters(BigGANEnergy(size=224, width=48)) == of_224


def test_attention_reads_every_pixel() -> None:
    """Changing one corner changes the energy's features at the other, which no convolution of its block could do."""
    torch.manual_seed(0)
    attention = SelfAttention(16)
    x = torch.randn(1, 16, 8, 8)
    assert torch.equal(attention(x), x)  # gamma begins at 0
    attention.gamma.data.fill_(1)
    y = x.clone()
    y[..., 0, 0] += 5
    assert (attention(x) - attention(y))[..., 7, 7].abs().max() > 1e-3


@pytest.mark.parametrize("size", [64, 128, 224, 256])
def test_biggan_generator_shapes(size: int) -> None:
    net = BigGANGenerator(size=size, width=8, noise=4, classes=3).eval()
    x = net(torch.randn(2, net.latent))
    assert x.shape == (2, 3, size, size)
    assert x.abs().max() <= 1


def test_biggan_latents_are_truncated_normals_of_uniform_classes(rng: torch.Generator) -> None:
    z = torch.randn(200_000, generator=rng)
    t = truncated(z)
    assert t.abs().max() <= 2
    # Variance of N(0, 1) cut at c: 1 - 2 c pdf(c) / (2 cdf(c) - 1).
    assert t.var().item() == pytest.approx(1 - 2 * 2 * 0.05399097 / (2 * 0.97724987 - 1), abs=0.01)
    assert (t[z.argsort()].diff() >= 0).all()
    assert truncated(torch.tensor([-40.0, 40.0])).tolist() == pytest.approx([-2, 2], abs=1e-3)
    net = BigGANGenerator(size=128, width=8, noise=4, classes=5)
    share = torch.bincount(net.chosen(z), minlength=5) / len(z)
    assert share.tolist() == pytest.approx([0.2] * 5, abs=0.005)
    assert net.chosen(torch.tensor([-40.0, 40.0])).tolist() == [0, 4]


def test_truncation_chooses_batch_statistics() -> None:
    layer = Standardized(1, 51)
    layer.means[:, 0] = torch.arange(51.0)
    for truncation, mean in ((1.0, 50), (0.58, 29), (0.02, 1), (0.31, 15.5)):
        assert -layer(torch.zeros(1, 1, 1, 1), truncation).item() == pytest.approx(mean, rel=1e-3)


@pytest.mark.parametrize("net", [BigGANEnergy, BigGANGenerator])
def test_biggan_sizes_that_do_not_exist(net: type[torch.nn.Module]) -> None:
    with pytest.raises(BadInput, match="not 32"):
        net(size=32)
    with pytest.raises(BadInput, match="multiple of 8"):
        net(size=128, width=12)
    with pytest.raises(BadInput, match="truncation"):
        BigGANGenerator(truncation=1.5)


def test_fourier_features_are_fixed_saved_and_let_energies_be_narrow() -> None:
    torch.manual_seed(0)
    net = PerceptronEnergy((2,), width=8, depth=1, fourier=5, bandwidth=20.0)
    assert "directions" in net.state_dict()
    assert "directions" not in dict(net.named_parameters())
    assert net.directions is not None
    assert 5 < net.directions.std() < 40
    assert "directions" not in PerceptronEnergy((2,)).state_dict()
    x = torch.randn(4, 2)
    angles = x @ net.directions
    expected = net.layers(torch.cat([x, angles.sin(), angles.cos()], 1)).squeeze(1)
    torch.testing.assert_close(net(x), expected)


@pytest.mark.parametrize("fourier", [0, 5])
def test_a_perceptrons_own_gradient_is_that_of_autograd(fourier: int) -> None:
    torch.manual_seed(0)
    net = PerceptronEnergy((1, 2, 3), width=8, depth=2, fourier=fourier)
    x = torch.randn(4, 1, 2, 3, requires_grad=True)
    (expected,) = torch.autograd.grad(net(x).sum(), x)
    own = net.gradient(x)
    torch.testing.assert_close(own, expected)
    assert not own.requires_grad
