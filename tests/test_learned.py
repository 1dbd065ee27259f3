"""Learning in the compiled program, against autograd in float64 and against PyTorch's own pass."""

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from test_program import Net, images, made
from torch import Tensor, nn
from torch.nn import functional as F

from ebmlife.nets import SNGANEnergy
from ebmlife.nets.activations import ACTIVATIONS
from ebmlife.sampling.energy import tempered
from ebmlife.sampling.learned import learned_energy
from ebmlife.sampling.native import Unsupported, WeightGradients
from ebmlife.sampling.native.library import library
from ebmlife.training.learner import Learner

pytestmark = pytest.mark.skipif(library() is None, reason="no C compiler on this machine")


def weight_gradients(energy: Callable[[Tensor], Tensor], net: nn.Module, loss: Tensor) -> Tensor:
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(net.parameters()))])


def likelihood(energies: Tensor) -> Tensor:
    of_data, of_samples = energies.view(2, -1).mean(1)
    return of_data - of_samples


def exact(net: nn.Module, x: Tensor, factors: Tensor) -> Tensor:
    double = copy.deepcopy(net).double()
    return weight_gradients(double, double, (double(x.double()) * factors.double()).sum())


def with_biases(net: nn.Module) -> nn.Module:
    with torch.no_grad():
        for p in net.parameters():
            if p.ndim == 1:
                p.uniform_(-0.1, 0.1, generator=torch.Generator().manual_seed(3))
    return net


@pytest.mark.parametrize("processor", ["native", "x86-64-v3"])
@pytest.mark.parametrize(
    ("make", "size", "channels"),
    [
        (lambda: SNGANEnergy(8, 32, 1), 8, 1),
        (lambda: SNGANEnergy(16, 10, 3), 16, 3),  # channels that no tile divides
        (lambda: SNGANEnergy(16, 48, 3), 16, 3),  # Winograd's convolutions
        *((lambda f=f: Net(f, width=7), 8, 3) for f in ACTIVATIONS.values()),
    ],
)
@pytest.mark.parametrize("n", [1, 16, 37])
def test_gradients_of_weights_are_those_of_float64(
    make: Callable[[], nn.Module], size: int, channels: int, n: int, processor: str
) -> None:
    if library(16, False, processor) is None:
        pytest.skip(f"cannot be compiled for {processor} here")
    net, x = with_biases(made(make)), images(n, channels, size)
    factors = torch.linspace(0.5, 1.5, n)
    for threads in (1, 2):
        program = WeightGradients(net, (channels, size, size), processor=processor)
        energies, found = program.learn(x, factors, threads=threads)
        torch.testing.assert_close(energies.double(), copy.deepcopy(net).double()(x.double()), rtol=1e-5, atol=1e-5)
        expected = exact(net, x, factors)
        flat = torch.cat([g.flatten() for g in found if g is not None])
        assert (flat - expected).norm() < 1e-5 * expected.norm()


def test_likelihood_takes_one_pass_and_any_other_loss_is_exact_too(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = with_biases(made(lambda: SNGANEnergy(8, 8, 1))), images(64, 1)
    passes = []
    learn = WeightGradients.learn
    monkeypatch.setattr(WeightGradients, "learn", lambda *args, **options: passes.append(1) or learn(*args, **options))
    losses = {1: likelihood, 2: lambda energies: likelihood(energies) + 0.1 * energies.square().mean()}
    for expected_passes, loss in losses.items():
        passes.clear()
        for temperature in (1.0, 0.013):
            fast, plain = learned_energy(net, temperature=temperature), tempered(net, temperature)
            found = weight_gradients(fast, net, loss(fast(x)))
            torch.testing.assert_close(found, weight_gradients(plain, net, loss(plain(x))), rtol=1e-4, atol=1e-5)
        assert len(passes) == 2 * expected_passes


def test_where_the_program_does_not_apply_pytorch_learns() -> None:
    class Doubling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor(2.0))

        def forward(self, x: Tensor) -> Tensor:
            return self.weight * x.flatten(1).sum(1).exp()

    net, x = Doubling(), images(64, 1)
    assert torch.equal(learned_energy(net)(x), net(x))
    supported = made(lambda: SNGANEnergy(8, 8, 1))
    fast = learned_energy(supported)
    few = x[:8]
    assert torch.equal(fast(few), supported(few))
    with pytest.raises(Unsupported):
        WeightGradients(net, (1, 8, 8))


def test_frozen_weights_get_no_gradient() -> None:
    net, x = made(lambda: SNGANEnergy(8, 8, 1)), images(64, 1)
    net.blocks[0].requires_grad_(False)
    likelihood(learned_energy(net)(x)).backward()
    assert all((p.grad is None) == (not p.requires_grad) for p in net.parameters())
    rest = [p.grad for p in net.parameters() if p.grad is not None]
    double = copy.deepcopy(net).double()
    double.zero_grad()
    likelihood(double(x.double())).backward()
    for found, p in zip(rest, (p for p in double.parameters() if p.requires_grad), strict=True):
        torch.testing.assert_close(found.double(), p.grad, rtol=1e-3, atol=1e-6)


def test_weights_that_change_before_the_backward_pass_are_an_error() -> None:
    net, x = made(lambda: SNGANEnergy(8, 8, 1)), images(64, 1)
    loss = likelihood(learned_energy(net)(x))
    with torch.no_grad():
        net.linear.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_learned_energy_can_be_copied() -> None:
    net, x = made(lambda: SNGANEnergy(8, 8, 1)), images(64, 1)
    energy = learned_energy(net, temperature=0.5)
    value = energy(x)
    for other in (copy.deepcopy(energy), pickle.loads(pickle.dumps(energy))):
        assert torch.equal(other(x), value)


@pytest.mark.parametrize("kind", ["adam", "adam with decay", "sgd", "nesterov"])
@pytest.mark.parametrize("clip_by", ["global", "weight"])
def test_fused_optimizers_learn_as_others_do(kind: str, clip_by: str) -> None:
    """To 1e-6 of the weights after five updates, with clipping and a moving average; states can be exchanged."""

    def learner(fused: bool) -> Learner:
        net = with_biases(made(lambda: SNGANEnergy(8, 8, 1)))
        make: dict[str, Callable[..., torch.optim.Optimizer]] = {
            "adam": lambda p, **o: torch.optim.Adam(p, betas=(0.5, 0.99), **o),
            "adam with decay": lambda p, **o: torch.optim.Adam(p, weight_decay=0.1, **o),
            "sgd": lambda p, **o: torch.optim.SGD(p, momentum=0.9, weight_decay=0.1, **o),
            "nesterov": lambda p, **o: torch.optim.SGD(p, momentum=0.9, nesterov=True, **o),
        }
        optimizer = make[kind](net.parameters(), fused=fused)
        return Learner(net, optimizer, learning_rate=1e-3, clip=0.01, clip_by=clip_by)  # type: ignore[arg-type]

    def train(one: Learner, updates: range) -> None:
        for update in updates:
            x = torch.randn(64, 1, 8, 8, generator=torch.Generator().manual_seed(update))
            one.descend(F.softplus(one.net(x)).mean(), update=update)

    plain, fused, resumed = learner(False), learner(True), learner(True)
    train(plain, range(5))
    train(fused, range(5))
    resumed.load_state_dict(copy.deepcopy(plain.state_dict()))  # of a run before optimizers were fused
    train(plain, range(5, 8))
    train(fused, range(5, 8))
    train(resumed, range(5, 8))
    for other in (fused, resumed):
        for name in ("net", "ema"):
            found, expected = other.state_dict()[name], plain.state_dict()[name]
            flat = [torch.cat([w.flatten() for w in weights.values()]) for weights in (found, expected)]
            assert (flat[0] - flat[1]).norm() < 1e-6 * flat[1].norm()
    assert fused.state_dict()["optimizer"].keys() == plain.state_dict()["optimizer"].keys()
    for one, other in zip(
        fused.state_dict()["optimizer"].values(), plain.state_dict()["optimizer"].values(), strict=True
    ):
        assert {name: (v.dtype, v.shape) for name, v in one.items() if isinstance(v, Tensor)} == {
            name: (v.dtype, v.shape) for name, v in other.items() if isinstance(v, Tensor)
        }
