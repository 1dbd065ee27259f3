import torch
from torch import nn

from ebmlife.sampling.energy import Score, frozen, gaussian, is_energy, tempered, total
from ebmlife.sampling.loop import langevin


def quadratic(x: torch.Tensor) -> torch.Tensor:
    return x.flatten(1).square().sum(1)


def test_combinations_are_their_equations() -> None:
    x = torch.randn(5, 2, 3)
    energy = total(tempered(quadratic, 0.1), gaussian(0.5))
    torch.testing.assert_close(energy(x), quadratic(x) / 0.1 + quadratic(x) / (2 * 0.5**2))


def test_total_of_one_is_that_one() -> None:
    assert total(quadratic) is quadratic


def test_frozen_restores_gradients_and_modes_even_after_an_error() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.Linear(2, 1))
    net[0].weight.requires_grad_(False)
    net[1].eval()
    energy = total(tempered(net, 2.0), gaussian(1.0))
    before = [p.requires_grad for p in net.parameters()], [m.training for m in net.modules()]
    try:
        with frozen(energy):
            assert not any(p.requires_grad for p in net.parameters())
            assert not any(m.training for m in net.modules())
            raise RuntimeError
    except RuntimeError:
        pass
    assert before == ([p.requires_grad for p in net.parameters()], [m.training for m in net.modules()])


def test_a_score_is_left_as_it_was() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    before = net[1].running_mean.clone()
    langevin(Score(net), torch.randn(8, 2), steps=3, step_size=0.1)
    assert torch.equal(net[1].running_mean, before)
    assert net.training
    assert not is_energy(Score(net))
