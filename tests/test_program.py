"""The compiled program: energies, activations and bfloat16, against float64 and against itself elsewhere."""

import copy
import platform
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ebmlife.nets import SNGANEnergy
from ebmlife.nets.activations import ACTIVATIONS
from ebmlife.sampling.energy import gradient
from ebmlife.sampling.fast import blocks, prepare
from ebmlife.sampling.native import Program, Unsupported
from ebmlife.sampling.native.library import library
from ebmlife.sampling.native.packing import split

pytestmark = pytest.mark.skipif(library() is None, reason="no C compiler on this machine")
x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="other kinds of x86-64 are compiled for on one")
SMOOTH = {name: function for name, function in ACTIVATIONS.items() if name != "relu"} | {
    "steep softplus": lambda x: F.softplus(x, 5.0),
    "module": nn.SiLU(),
}


class Net(nn.Module):
    """Residual, so that activations are also read by several others."""

    def __init__(self, activation: Callable[[Tensor], Tensor], *, channels: int = 3, width: int = 10) -> None:
        super().__init__()
        self.activation = activation
        self.first = nn.Conv2d(channels, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 4, stride=2, padding=1)
        self.third = nn.Conv2d(width, width, 3, padding=1)
        self.linear = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.second(self.activation(self.first(x)))
        h = h + self.third(self.activation(h))
        return self.linear(self.activation(h).mean((2, 3))).squeeze(1)


def made(maker: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return maker()


def images(n: int, channels: int = 3, size: int = 8, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(n, channels, size, size, generator=torch.Generator().manual_seed(2))


def exact(net: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    double = copy.deepcopy(net).double()
    return double(x.double()).detach(), gradient(double, x.double())


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("width", [10, 48])  # the second has Winograd's convolutions
@pytest.mark.parametrize("scale", [0.1, 1.0, 300.0])  # in the bend, usual, and far out where exp overflows
def test_smooth_activations_are_exact(name: str, width: int, scale: float) -> None:
    net, x, energy = made(lambda: Net(SMOOTH[name], width=width)), images(9, scale=scale), torch.empty(9)
    got = Program(net, (3, 8, 8))(x, threads=1, energy=energy)
    wanted_energy, wanted = exact(net, x)
    assert (got - wanted).norm() <= 1e-5 * wanted.norm()
    assert (energy - wanted_energy).norm() <= 1e-5 * wanted_energy.norm()


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("size", [8, 28, 32])
def test_energies_of_every_activation(name: str, size: int) -> None:
    net, x, energy = made(lambda: SNGANEnergy(size, 12, 3, activation=name)), images(8, size=size), torch.empty(8)
    got = Program(net, x.shape[1:])(x, threads=1, energy=energy)
    wanted_energy, wanted = exact(net, x)
    assert (got - wanted).norm() <= 1e-5 * wanted.norm()
    assert (energy - wanted_energy).norm() <= 1e-5 * wanted_energy.norm()


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_activations_do_not_hide_nan(name: str) -> None:
    net, x = made(lambda: Net(SMOOTH[name])), images(9)
    x[3, 0, 4, 4] = float("nan")
    energy = torch.empty(9)
    found = Program(net, (3, 8, 8))(x, threads=1, energy=energy)
    assert energy.isnan().tolist() == [i == 3 for i in range(9)]
    assert found[[0, 1, 2, 4]].isfinite().all()


@pytest.mark.parametrize("half", [False, True])
def test_the_energy_is_that_of_the_network(half: bool) -> None:
    net, x, energy = made(lambda: SNGANEnergy(8, 20, 1)), images(21, 1), torch.empty(21)
    with_energy = Program(net, (1, 8, 8), half=half)(x, threads=2, energy=energy)
    torch.testing.assert_close(energy, net(x).detach(), rtol=2e-2 if half else 1e-5, atol=2e-2 if half else 1e-6)
    assert torch.equal(with_energy, Program(net, (1, 8, 8), half=half)(x, threads=1))


@pytest.mark.parametrize(
    ("size", "width", "channels"), [(8, 37, 1), (8, 10, 2), (28, 32, 1), (28, 64, 1), (32, 12, 3), (32, 64, 3)]
)
def test_bfloat16_rounds_as_pytorch_does(size: int, width: int, channels: int) -> None:
    """Not the same bits, as sums are taken in another order, but the same distance to the exact gradient."""
    net, x = made(lambda: SNGANEnergy(size, width, channels)), images(32, channels, size)
    _, wanted = exact(net, x)
    got = Program(net, x.shape[1:], half=True)(x, threads=1).double()
    theirs = gradient(copy.deepcopy(net).bfloat16(), x.bfloat16()).double()
    assert (got - wanted).norm() < 1.5 * (theirs - wanted).norm()
    assert F.cosine_similarity(got.flatten(1), wanted.flatten(1)).mean() > 0.99


@pytest.mark.parametrize("n", [1, 8, 17, 40])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("block", [8, 16])
def test_neither_batch_nor_threads_nor_blocks_change_a_bit_of_bfloat16(n: int, threads: int, block: int) -> None:
    net, x = made(lambda: SNGANEnergy(8, 50, 1)), images(40, 1)
    together = Program(net, (1, 8, 8), half=True)(x, threads=1)
    assert torch.equal(Program(net, (1, 8, 8), images=block, half=True)(x[:n], threads=threads), together[:n])


@x86
@pytest.mark.parametrize("processor", ["x86-64", "x86-64-v3"])  # without and with AVX2; neither has bfloat16
@pytest.mark.parametrize(("width", "channels"), [(12, 3), (50, 1)])
def test_bfloat16_has_the_same_bits_on_processors_without_it(processor: str, width: int, channels: int) -> None:
    net, x = made(lambda: SNGANEnergy(8, width, channels)), images(20, channels)
    x[0, 0, 0, :4] = torch.tensor([1e-39, -1e-39, 1e-30, 0.0])  # denormal, tiny
    here, there = (Program(net, x.shape[1:], half=True, processor=kind)(x, threads=1) for kind in ("native", processor))
    assert torch.equal(here, there)


@x86
@pytest.mark.parametrize("processor", ["x86-64", "x86-64-v3"])
@pytest.mark.parametrize("name", SMOOTH)
def test_other_processors_are_as_exact(processor: str, name: str) -> None:
    net, x = made(lambda: Net(SMOOTH[name])), images(9)
    wanted = exact(net, x)[1]
    assert (Program(net, (3, 8, 8), processor=processor)(x, threads=1) - wanted).norm() <= 1e-5 * wanted.norm()


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_bfloat16_does_not_hide_what_is_not_finite(half: bool, value: float) -> None:
    net, x = made(lambda: SNGANEnergy(8, 10, 1)), images(8, 1)
    x[2, 0, 3, 3] = value
    energy = torch.empty(8)
    found = Program(net, (1, 8, 8), half=half)(x, threads=1, energy=energy)
    assert energy.isfinite().tolist() == [i != 2 for i in range(8)]  # the gradient of a ReLU network may be finite
    assert found[[0, 1, 3]].isfinite().all()


@pytest.mark.parametrize("half", [False, True])
def test_weights_are_read_again_when_they_change(half: bool) -> None:
    net, x = made(lambda: SNGANEnergy(8, 10, 1)), images(8, 1)
    program = Program(net, (1, 8, 8), half=half)
    before = program(x, threads=1)
    with torch.no_grad():
        net.linear.weight.mul_(2)
    torch.testing.assert_close(program(x, threads=1), 2 * before, rtol=1e-5 if not half else 2e-2, atol=1e-7)


@pytest.mark.parametrize("outputs", [1, 2, 3, 5, 10, 16, 32, 37, 64, 100, 128, 256, 1000])
@pytest.mark.parametrize("sizes", [(24, 16, 12, 8, 6, 4, 3, 2, 1), (12, 8, 6, 4, 3, 2, 1), (6, 4, 3, 2, 1)])
def test_tiles_cover_all_outputs_and_split_no_pair(outputs: int, sizes: tuple[int, ...]) -> None:
    tiles = split(outputs, sizes)
    assert sum(tiles) == outputs
    assert set(tiles) <= set(sizes)
    assert all(size % 2 == 0 for size in tiles[:-1])
    assert len(tiles) <= -(-outputs // sizes[0]) + 2


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(("size", "strips"), [(8, 2), (8, 4), (32, 8), (64, 2)])
@pytest.mark.parametrize("block", [8, 16])
def test_strips_change_no_bit(half: bool, size: int, strips: int, block: int) -> None:
    """But for the order in which an energy is summed over pixels."""
    net, x = made(lambda: SNGANEnergy(size, 16, 3, activation="silu")), images(5, size=size)
    energy, in_strips = torch.empty(5), torch.empty(5)
    wanted = Program(net, x.shape[1:], half=half)(x, threads=1, energy=energy)
    got = Program(net, x.shape[1:], half=half, images=block, strips=strips)(x, threads=2, energy=in_strips)
    assert torch.equal(got, wanted)
    torch.testing.assert_close(in_strips, energy, rtol=1e-5, atol=1e-6)


class Wide(nn.Module):
    """Its kernel reaches two columns far."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.linear = nn.Conv2d(1, 4, 5, padding=2), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(F.relu(self.body(x)).mean((2, 3))).squeeze(1)


def test_strips_that_do_not_fit_are_refused() -> None:
    with pytest.raises(Unsupported, match="8 strips of 4 columns"):
        Program(made(lambda: SNGANEnergy(8, 4, 1)), (1, 8, 8), strips=8)
    with pytest.raises(Unsupported, match="beyond the next column"):
        Program(Wide(), (1, 8, 8), strips=2)


@pytest.mark.parametrize("n", range(1, 9))
def test_any_number_of_images_has_the_same_gradients(n: int) -> None:
    net, x = made(lambda: SNGANEnergy(8, 12, 1)), images(64, 1)
    energy = prepare(net)
    assert torch.equal(gradient(energy, x[:n]), gradient(energy, x)[:n])


def test_blocks_are_full_or_nearly() -> None:
    assert blocks(16) == [(16, 1)]
    assert blocks(9) == [(8, 1)]
    assert blocks(1) == [(16, 16), (8, 8), (16, 8), (8, 4), (16, 4), (8, 2), (16, 2)]
    assert blocks(3)[0] == (16, 4)  # 12 of 16
    assert all(n * strips <= places for n in range(1, 8) for places, strips in blocks(n))
