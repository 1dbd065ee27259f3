"""A name stays with a function from process to process, and changes with everything that changes the function."""

import math
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from ebmlife import load
from ebmlife.sampling.energy import gaussian, tempered, total
from ebmlife.sampling.fingerprint import of_functions, of_gradient, of_tensors
from ebmlife.storage.settings import alike

MADE = """
import torch
from torch import nn
from ebmlife.sampling.fingerprint import of_functions
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(18, 1))
net.made_of = (print, "a")
print(of_functions(net))
"""


def test_another_process_finds_the_same_name() -> None:
    names = {
        subprocess.run([sys.executable, "-c", MADE], capture_output=True, text=True, check=True).stdout for _ in "ab"
    }
    assert len(names) == 1


def net(**changes: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(**({"in_channels": 1, "out_channels": 2, "kernel_size": 3} | changes)))


def test_whatever_changes_the_function_changes_its_name() -> None:
    scaled = net()
    scaled.register_buffer("mean", torch.ones(1), persistent=False)
    moved = net()
    next(moved.parameters()).data[0, 0, 0, 0] += 1e-6
    functions = [
        net(),
        net(stride=2),
        net(padding=1),
        moved,
        scaled,
        nn.Sequential(nn.ReLU(), *net().children()),
        tempered(net(), 1.0),
        tempered(net(), 2.0),
        total(net(), gaussian(1.0)),
        total(net(), gaussian(2.0)),
    ]
    assert len({of_functions(function) for function in functions}) == len(functions)
    assert of_functions(net()) == of_functions(net().eval()) == of_functions(net())


def test_tensors_are_named_by_their_values_and_order() -> None:
    a, b = torch.arange(6.0), torch.zeros(2)
    assert of_tensors(a, b) == of_tensors(a.clone(), b) != of_tensors(b, a)
    assert of_tensors(a.view(2, 3).T) == of_tensors(a.view(2, 3).T.contiguous())


def test_a_plain_function_has_the_name_of_all_such() -> None:
    def energy(x: Tensor) -> Tensor:
        return x.sum(1)

    assert of_functions(energy) == of_functions(abs)


def test_functions_without_weights_are_identified_by_their_gradient() -> None:
    x = torch.randn(9, 2)
    scales = [1.0, 1.1]
    grads = [of_gradient(lambda x, k=k: k * x.square().sum(1), x) for k in scales]  # type: ignore[misc]
    assert grads[0] == pytest.approx((2 * x[:4].norm(dim=1)).tolist())
    assert not alike(*grads)
    assert alike(grads[0], [length * 1.0001 for length in grads[0]])
    assert alike([math.nan], [math.nan])
    assert not alike(0.1, 0.1001)  # a setting, not a measurement
    assert not alike([1.0], [1.0, 2.0])


def test_fingerprints_of_energies_are_those_of_earlier_versions() -> None:
    """Exams and attacks in folders are recognized by them."""
    energy = load("zoo:digits-longrun").energy
    assert of_functions(energy) == "3cefe08084c5"
