"""Every fast path against the plain one."""

import copy
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from conftest import small_digits
from torch import Tensor, nn
from torch.nn import functional as F

from ebmlife import langevin, prepare, seeded
from ebmlife.errors import BadInput
from ebmlife.nets import PerceptronEnergy, SNGANEnergy
from ebmlife.nets.sngan import SIZES
from ebmlife.runs import build
from ebmlife.sampling.energy import energy_and_gradient, frozen, gaussian, gradient, tempered, total
from ebmlife.sampling.fast import has_bf16
from ebmlife.sampling.native import Program, Unsupported
from ebmlife.sampling.native.library import library
from ebmlife.sampling.precision import fastest
from ebmlife.sampling.torch_threads import awake

needs_compiler = pytest.mark.skipif(library() is None, reason="no C compiler on this machine")


def shaken(net: nn.Module) -> nn.Module:
    """Biases too away from 0."""
    rng = torch.Generator().manual_seed(1)
    for parameter in net.parameters():
        parameter.data += 0.05 * torch.randn(parameter.shape, generator=rng)
    return net


def by_autograd(net: nn.Module, x: Tensor) -> Tensor:
    """In float64, where no rounding can put an activation on the other side of 0."""
    return gradient(copy.deepcopy(net).double(), x.double())


def images(n: int, channels: int, size: int) -> Tensor:
    return torch.randn(n, channels, size, size, generator=torch.Generator().manual_seed(2))


@needs_compiler
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("channels", [1, 3])
def test_compiled_gradients_of_every_sngan(size: int, channels: int) -> None:
    net = shaken(SNGANEnergy(size, 16 if size > 32 else 10, channels))
    x = images(3, channels, size)
    torch.testing.assert_close(
        Program(net, x.shape[1:])(x, threads=1).double(), by_autograd(net, x), rtol=1e-5, atol=1e-7
    )


@needs_compiler
@pytest.mark.parametrize("n", [1, 15, 16, 17, 50])
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("block", [8, 16])
def test_neither_batch_nor_threads_nor_blocks_change_a_bit(n: int, threads: int, block: int) -> None:
    net, x = shaken(SNGANEnergy(8, 37, 1)), images(50, 1, 8)
    together = Program(net, (1, 8, 8))(x, threads=1)
    assert torch.equal(Program(net, (1, 8, 8), images=block)(x[:n], threads=threads), together[:n])


@needs_compiler
@pytest.mark.parametrize(("size", "width"), [(8, 32), (32, 64)])
def test_a_walk_is_the_same_with_any_number_of_threads(size: int, width: int) -> None:
    """Its states and what it says of its gradients; the second width has Winograd's convolutions."""
    net, x, before, walks = shaken(SNGANEnergy(size, width, 1)), images(40, 1, size), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            energy = total(prepare(net, temperature=0.1), gaussian(0.5))
            for _ in range(2):  # PyTorch's threads are awake in the first walk and asleep in the second
                walks.append(langevin(energy, x, steps=3, step_size=0.05, noise=seeded(0), clip=1.0))
    finally:
        torch.set_num_threads(before)
    for got, info in walks[1:]:
        assert torch.equal(got, walks[0][0])
        assert torch.equal(info.gradient, walks[0][1].gradient)


class Zoo(nn.Module):
    """All that the compiled program knows, in other arrangements than SNGAN's."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 5, 3, padding=1)
        self.second = nn.Conv2d(5, 5, 5, padding=2, bias=False)
        self.third = nn.Conv2d(5, 4, 2, stride=2)
        self.relu, self.pool, self.same = nn.ReLU(), nn.AvgPool2d(2), nn.Identity()
        self.linear = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.first(x)
        b = self.relu(a)
        c = self.same(b) + self.second(b) + a  # a relu and a convolution that several read
        d = F.relu(self.third(torch.relu(c)))
        e = self.pool(d) + F.conv2d(self.pool(d), 2 * self.third.weight.sum((2, 3))[:, :4, None, None])
        return self.linear(e.mean(dim=(-2, -1))).flatten(0)


@needs_compiler
def test_compiled_gradient_of_another_network() -> None:
    net = shaken(Zoo())
    x = images(5, 2, 8)
    torch.testing.assert_close(
        Program(net, (2, 8, 8))(x, threads=2).double(), by_autograd(net, x), rtol=1e-5, atol=1e-7
    )


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1).sum(1) if x.sum() > 0 else -x.flatten(1).sum(1)


@needs_compiler
@pytest.mark.parametrize(
    "net",
    [
        PerceptronEnergy((1, 8, 8), width=4),
        nn.Sequential(nn.Conv2d(1, 4, 3, groups=1, dilation=2), nn.Flatten(), nn.Linear(64, 1), nn.Flatten(0)),
        nn.Sequential(nn.Conv2d(1, 4, 3, padding_mode="circular"), nn.Flatten(), nn.Linear(144, 1), nn.Flatten(0)),
        Branching(),
    ],
)
def test_other_networks_are_left_to_autograd(net: nn.Module) -> None:
    x = images(9, 1, 8)
    with pytest.raises(Unsupported):
        Program(net, (1, 8, 8))
    torch.testing.assert_close(gradient(prepare(net, precision="f32"), x), gradient(net, x))


@needs_compiler
def test_nan_and_infinity_are_not_hidden() -> None:
    net = shaken(SNGANEnergy(8, 4, 1))
    x = images(9, 1, 8)
    x[1, 0, 3, 3] = float("nan")
    walked, _ = langevin(prepare(net, precision="f32"), x, steps=3, step_size=0.1, noise=seeded(0))
    assert walked[1].isnan().any()
    assert walked[[0, *range(2, 9)]].isfinite().all()
    with torch.no_grad():
        net.linear.weight.fill_(float("nan"))
    assert gradient(prepare(net, precision="f32"), x).isnan().any()


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_prepared_energies_follow_the_weights(precision: str) -> None:
    net = shaken(SNGANEnergy(8, 8, 1))
    energy = prepare(net, temperature=0.5, precision=precision)  # type: ignore[arg-type]
    x = images(9, 1, 8)
    first = gradient(energy, x)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    net(x).sum().backward()
    optimizer.step()
    second = gradient(energy, x)
    assert not torch.equal(first, second)
    similarity = F.cosine_similarity(second.flatten(), by_autograd(net, x).flatten().float(), dim=0)
    assert similarity > (0.999999 if precision == "f32" else 0.99)


@pytest.mark.parametrize("precision", ["auto", "f32", "bf16"])
def test_energies_are_exact_and_divided_by_the_temperature(precision: str) -> None:
    net = shaken(SNGANEnergy(16, 8, 3))
    x = images(9, 3, 16)
    energy = prepare(net, temperature=1e-2, precision=precision)  # type: ignore[arg-type]
    torch.testing.assert_close(energy(x), net(x) / 1e-2)
    with frozen(energy):
        assert not any(p.requires_grad for p in net.parameters())
    assert all(p.requires_grad for p in net.parameters())
    assert all(p.grad is None for p in net.parameters())


@pytest.mark.parametrize("size", [8, 32])
def test_bf16_gradients_point_the_same_way(size: int) -> None:
    """Rounding moves activations across 0 now and then, and that is all: the cosine stays near 1."""
    torch.manual_seed(0)
    net = SNGANEnergy(size, 32, 3)
    x = images(8, 3, size).clamp(-1, 1)
    half, full = (gradient(prepare(net, precision=p), x) for p in ("bf16", "f32"))  # type: ignore[arg-type]
    assert half.dtype == torch.float32
    cosines = F.cosine_similarity(half.flatten(1), full.flatten(1))
    assert cosines.min() > 0.98
    assert cosines.mean() > 0.99


def test_bf16_keeps_the_stationary_variance_of_a_gaussian() -> None:
    """The network's gradient is rounded, the state is not: variance 2 s^2 / (2 - a) within 5 standard deviations."""

    class Quadratic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stiffness = nn.Parameter(torch.tensor(4.0))

        def forward(self, x: Tensor) -> Tensor:
            return self.stiffness * x.square().sum(1) / 2

    energy = prepare(Quadratic(), precision="bf16")
    x, _ = langevin(energy, torch.zeros(10_000, 2), steps=200, step_size=0.2, noise=seeded(3))
    expected = 2 * 0.25 / (2 - 0.2**2 / (2 * 0.25))
    assert x.var().item() == pytest.approx(expected, rel=5 * (2 / 20_000) ** 0.5)


@needs_compiler
def test_a_walk_leaves_the_number_of_threads_as_it_was() -> None:
    net, before, seen = shaken(SNGANEnergy(8, 4, 1)), torch.get_num_threads(), []

    def noise(x: Tensor) -> Tensor:
        seen.append(torch.get_num_threads())
        return torch.zeros_like(x)

    energy = prepare(net, temperature=0.1)
    for _ in range(2):
        langevin(energy, images(9, 1, 8), steps=2, step_size=0.1, noise=noise)
        assert torch.get_num_threads() == before
    assert seen[-1] == 1


def test_combined_energies_combine_gradients() -> None:
    net = shaken(SNGANEnergy(8, 4, 1))
    x = images(9, 1, 8)
    plain = total(lambda x: net(x) / 0.1, lambda x: x.flatten(1).square().sum(1) / (2 * 0.5**2))
    fast = total(tempered(prepare(net, precision="f32"), 0.1), gaussian(0.5))
    torch.testing.assert_close(gradient(fast, x), gradient(plain, x), rtol=1e-4, atol=1e-6)


class Tail(nn.Module):
    """Something, then a convolution, the mean and a linear layer: fit for a program but for the something."""

    def __init__(self, something: nn.Module) -> None:
        super().__init__()
        self.something, self.conv, self.linear = something, nn.Conv2d(1, 3, 3, padding=1), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(F.relu(self.conv(self.something(x))).mean((2, 3))).squeeze(1)


class Scaled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.add(x, F.relu(x), alpha=0.1)


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.relu = nn.Conv2d(1, 1, 3, padding=1), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return self.conv(self.relu(x)) + x  # the x that was rectified in place


class Hooked(nn.Conv2d):
    def __init__(self) -> None:
        super().__init__(1, 1, 1)
        self.register_forward_hook(lambda *arguments: 3 * arguments[-1])


class Lengths(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.view(len(x), 1, 8, 8)


class Optional(nn.Module):
    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        return x


@pytest.mark.parametrize(
    "something",
    [
        nn.AvgPool2d(2, stride=1),
        nn.AvgPool2d(2, divisor_override=1),
        nn.AvgPool2d(2, padding=1),
        Scaled(),
        InPlace(),
        nn.Sequential(Hooked()),
        torch.nn.utils.parametrizations.weight_norm(nn.Conv2d(1, 1, 3)),
        Lengths(),
        Optional(),
    ],
    ids=lambda module: type(module).__name__,
)
def test_what_a_program_does_not_know_is_left_to_autograd(something: nn.Module) -> None:
    net = shaken(Tail(something))
    x = images(9, 1, 8)
    torch.testing.assert_close(gradient(prepare(net), x), gradient(net, x), rtol=1e-4, atol=1e-6)


def test_a_network_without_weights_is_no_obstacle() -> None:
    class Bare(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.square().flatten(1).sum(1)

    x = images(9, 1, 8)
    torch.testing.assert_close(gradient(prepare(Bare()), x), 2 * x)


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_each_walk_takes_the_weights_of_its_beginning(precision: str) -> None:
    """However they were changed: through .data, by assignment, or as a buffer."""
    net = shaken(SNGANEnergy(8, 4, 1))
    x = images(16, 1, 8)
    energy = prepare(net, precision=precision)  # type: ignore[arg-type]

    def walked(energy: object) -> Tensor:
        y, _ = langevin(energy, x, steps=2, step_size=0.5, noise=torch.zeros_like)  # type: ignore[arg-type]
        return y - x

    walked(energy)
    for change in ("data", "assign"):
        if change == "data":
            net.linear.weight.data.mul_(-3)
        else:
            weights = {name: 2 * value for name, value in net.state_dict().items()}
            net.load_state_dict(weights, assign=True)
        similarity = F.cosine_similarity(walked(energy).flatten(), walked(lambda x: net(x)).flatten(), dim=0)
        assert similarity > (0.9999 if precision == "f32" else 0.97)


@needs_compiler
def test_threads_can_share_a_prepared_energy() -> None:
    energy = prepare(shaken(SNGANEnergy(8, 16, 1)))
    inputs = [images(40, 1, 8) * scale for scale in (1.0, 0.5, 2.0, 0.1)]
    expected = [gradient(energy, x) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(10):
            for got, wanted in zip(pool.map(lambda x: gradient(energy, x), inputs), expected, strict=True):
                assert torch.equal(got, wanted)


@needs_compiler
def test_two_prepared_energies_in_one_walk_have_all_threads_each() -> None:
    one, two = (prepare(shaken(SNGANEnergy(8, 4, 1))) for _ in range(2))
    both, x, before = total(one, two), images(40, 1, 8), torch.get_num_threads()
    gradient(both, x)
    with frozen(both):
        assert torch.get_num_threads() == 1
        assert awake() == before
    assert torch.get_num_threads() == before


def test_copies_are_independent() -> None:
    for precision in ("f32", "bf16"):
        energy = prepare(shaken(SNGANEnergy(8, 4, 1)), precision=precision)  # type: ignore[arg-type]
        x = images(9, 1, 8)
        before = gradient(energy, x)
        other = copy.deepcopy(energy)
        with torch.no_grad():
            other.net.linear.weight.mul_(2)  # type: ignore[attr-defined]
        torch.testing.assert_close(gradient(other, x), 2 * before, rtol=0.02, atol=1e-3)
        assert torch.equal(gradient(energy, x), before)


def test_training_samples_the_weights_of_the_moment() -> None:
    training = build.training(small_digits(optimizer__learning_rate="0.05", langevin__precision="f32"))
    for _ in range(3):
        training.trainer.step()
        x = images(9, 1, 8)
        for energy, net in (
            (training.trainer.energy.full, training.trainer.ebm.net),
            (training.model.energy, training.trainer.ebm.ema),
        ):
            expected = by_autograd(net, x).float() / training.model.recipe.temperature
            torch.testing.assert_close(gradient(energy, x), expected, rtol=1e-4, atol=1e-4)


def test_auto_never_emulates() -> None:
    net = SNGANEnergy(8, 4, 1)
    x, energy = images(9, 1, 8), prepare(net, precision="auto")
    if not has_bf16(torch.device("cpu")):
        assert torch.equal(gradient(energy, x), gradient(prepare(net, precision="f32"), x))
    assert not has_bf16(torch.device("meta"))


def test_the_choice_of_auto_is_measured_once_and_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    net, x, calls = SNGANEnergy(8, 4, 1), images(9, 1, 8), []

    def way(name: str, seconds: float) -> Callable[[Tensor], Tensor]:
        def gradient_of(x: Tensor) -> Tensor:
            calls.append(name)
            time.sleep(seconds)
            return x

        return gradient_of

    ways = {"f32": way("f32", 0.02), "bf16": way("bf16", 0.0)}
    assert fastest(ways, net, x) == "bf16"
    assert "precision auto: bf16 for batches of shape (9, 1, 8, 8)" in capsys.readouterr().err
    calls.clear()
    assert fastest(ways, net, x) == "bf16"
    assert not calls
    (file,) = tmp_path.rglob("precision/*.json")
    file.write_text("{")  # damaged: it is measured again
    assert fastest(ways, net, x) == "bf16"
    assert calls
    calls.clear()
    fastest(ways, net, x[:8])  # another batch
    fastest(ways, SNGANEnergy(8, 5, 1), x)  # another network
    assert len(calls) == 2 * 2 * 4


@pytest.mark.parametrize("precision", ["auto", "f32", "bf16"])
@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_energy_and_gradient_together_are_those_of_each(precision: str, activation: str) -> None:
    net, x = shaken(SNGANEnergy(8, 10, 1, activation)), images(9, 1, 8)
    energy = total(prepare(net, temperature=0.1, precision=precision), gaussian(0.5))  # type: ignore[arg-type]
    value, grad = energy_and_gradient(energy, x)
    assert torch.equal(grad, gradient(energy, x))
    near = {"rtol": 1e-5, "atol": 1e-4} if precision == "f32" else {"rtol": 0.03, "atol": 0.3}
    torch.testing.assert_close(value, energy(x).detach(), **near)


def test_energy_and_gradient_of_any_energy() -> None:
    value, grad = energy_and_gradient(lambda x: x.square().sum(1), torch.tensor([[1.0, 2.0]]))
    assert (value.tolist(), grad.tolist()) == ([5.0], [[2.0, 4.0]])


@needs_compiler
@pytest.mark.filterwarnings("default")  # torch's own, while it compiles
def test_compiled_by_torch_gives_the_same_gradients_and_takes_smaller_batches() -> None:
    net = shaken(PerceptronEnergy((6,), width=16))
    energy = prepare(net, precision="f32", compile="on")
    x = torch.randn(9, 6)
    torch.testing.assert_close(gradient(energy, x), gradient(net, x))
    with torch._dynamo.config.patch(error_on_recompile=True):
        torch.testing.assert_close(gradient(energy, x[:5]), gradient(net, x[:5]))


def test_unknown_compile_is_named() -> None:
    with pytest.raises(BadInput, match="unknown compile 'yes'"):
        prepare(nn.Identity(), compile="yes")  # type: ignore[arg-type]


def test_unknown_precision_is_named() -> None:
    with pytest.raises(BadInput, match="unknown precision 'fp16'; did you mean 'bf16'"):
        prepare(nn.Identity(), precision="fp16")  # type: ignore[arg-type]


def test_without_a_compiler_pytorch_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    library.cache_clear()
    monkeypatch.setenv("EBMLIFE_NATIVE", "0")
    try:
        net = SNGANEnergy(8, 4, 1)
        x = images(9, 1, 8)
        assert library() is None
        torch.testing.assert_close(gradient(prepare(net, precision="f32"), x), gradient(net, x))
    finally:
        library.cache_clear()
