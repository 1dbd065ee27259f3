"""Prepared energies shared by threads, and in children that are forked while they are walked on."""

import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ebmlife import BadInput, langevin, prepare
from ebmlife.nets import PerceptronEnergy, SNGANEnergy
from ebmlife.sampling.energy import frozen, gradient
from ebmlife.sampling.native.library import library
from ebmlife.sampling.weight_copies import changing_weights

needs_compiler = pytest.mark.skipif(library() is None, reason="no C compiler on this machine")


def images(n: int = 24) -> Tensor:
    return torch.randn(n, 1, 8, 8, generator=torch.Generator().manual_seed(2))


def walked(energy: Any, steps: int = 12) -> Tensor:
    return langevin(energy, images(), steps=steps, step_size=0.5, noise=torch.zeros_like)[0]


def in_threads(*works: Callable[[], None]) -> None:
    """Runs all of them at once, and raises what any of them raised."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_a_walk_has_the_same_weights_from_its_first_step_to_its_last(precision: str) -> None:
    """Two threads walk while a third goes to and fro between two sets of weights: every walk is of one of them."""
    if precision == "f32" and library() is None:
        pytest.skip("no C compiler on this machine")
    nets = []
    for seed in range(2):
        torch.manual_seed(seed)
        nets.append(SNGANEnergy(8, 8, 1))
    states = [net.state_dict() for net in nets]
    expected = [walked(prepare(net, precision=precision)) for net in nets]  # type: ignore[arg-type]
    net = SNGANEnergy(8, 8, 1)
    net.load_state_dict(states[0])
    energy = prepare(net, precision=precision)  # type: ignore[arg-type]
    done, seen = threading.Event(), []

    def walk() -> None:
        for _ in range(60 if precision == "f32" else 10):
            got = walked(energy)
            seen.append([torch.equal(got, one) for one in expected])

    def change() -> None:
        turn = 0
        while not done.is_set():
            turn = 1 - turn
            with changing_weights:
                net.load_state_dict(states[turn])
            time.sleep(0.0005)

    changer = threading.Thread(target=change)
    changer.start()
    try:
        in_threads(walk, walk)
    finally:
        done.set()
        changer.join()
    assert [sum(one) for one in seen] == [1] * len(seen)
    assert {one.index(True) for one in seen} == {0, 1}  # the weights did change meanwhile


def test_weights_that_change_under_a_walk_on_the_network_itself_are_an_error() -> None:
    """A perceptron has no compiled program."""
    net = PerceptronEnergy((1, 8, 8), width=4)
    energy = prepare(net)

    def noise(x: Tensor) -> Tensor:
        with torch.no_grad():
            next(net.parameters()).mul_(2)
        return torch.zeros_like(x)

    with pytest.raises(BadInput, match="weights changed"):
        langevin(energy, images(), steps=2, step_size=0.1, noise=noise)
    langevin(energy, images(), steps=2, step_size=0.1, noise=torch.zeros_like)


def test_networks_stay_frozen_until_the_last_walk_ends() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 1), nn.Dropout(), nn.Flatten(0))
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()
    seen = []

    def first() -> None:
        with frozen(net):
            first_in.set()
            second_in.wait()
        first_out.set()

    def second() -> None:
        first_in.wait()
        with frozen(net):
            second_in.set()
            first_out.wait()
            seen.append((net.training, net[1].weight.requires_grad))

    in_threads(first, second)
    assert seen == [(False, False)]
    assert net.training
    assert net[2].training
    assert all(p.requires_grad for p in net.parameters())


@needs_compiler
def test_walks_at_the_same_time_leave_each_thread_its_number_of_threads() -> None:
    energy = prepare(SNGANEnergy(8, 4, 1))
    walked(energy)
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()
    seen = {}

    def first() -> None:
        torch.set_num_threads(2)
        with frozen(energy):
            first_in.set()
            second_in.wait()
        seen["first"] = torch.get_num_threads()
        first_out.set()

    def second() -> None:
        torch.set_num_threads(2)
        first_in.wait()
        with frozen(energy):
            seen["asleep"] = torch.get_num_threads()
            second_in.set()
            first_out.wait()
        seen["second"] = torch.get_num_threads()

    before = torch.get_num_threads()
    try:
        in_threads(first, second)
    finally:
        torch.set_num_threads(before)
    assert seen == {"first": 2, "asleep": 1, "second": 2}


@needs_compiler
def test_threads_can_begin_at_once_and_call_other_networks_meanwhile() -> None:
    """Each makes its own program, and torch.fx replaces `nn.Module.__call__` for all threads while it traces."""
    net, other, done = SNGANEnergy(8, 4, 1), nn.Sequential(nn.Flatten(), nn.Linear(64, 1)), threading.Event()
    expected, plain = walked(prepare(net)), other(images())

    def begin() -> None:
        for _ in range(5):
            assert torch.equal(walked(prepare(net)), expected)

    def call() -> None:
        while not done.is_set():
            assert torch.equal(other(images()), plain)

    caller = threading.Thread(target=lambda: in_threads(call, call))
    failed: list[object] = []
    hook, threading.excepthook = threading.excepthook, failed.append
    often = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    caller.start()
    try:
        in_threads(begin, begin, begin)
    finally:
        done.set()
        caller.join()
        threading.excepthook = hook
        sys.setswitchinterval(often)
    assert not failed


class Uncopied(nn.Module):
    """A network with a lock in it, which nothing can copy."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear, self.lock = nn.Conv2d(1, 3, 3), nn.Linear(3, 1), threading.Lock()

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(F.relu(self.conv(x)).mean((2, 3))).squeeze(1)


def test_a_network_that_cannot_be_copied_is_left_to_autograd() -> None:
    net = Uncopied()
    torch.testing.assert_close(gradient(prepare(net), images()), gradient(net, images()))


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_prepared_energies_can_be_pickled_at_any_time(precision: str) -> None:
    energy = prepare(SNGANEnergy(8, 4, 1), temperature=0.1, precision=precision)  # type: ignore[arg-type]
    there = pickle.loads(pickle.dumps(energy))
    assert torch.equal(walked(there), walked(energy))
    assert torch.equal(walked(pickle.loads(pickle.dumps(energy))), walked(energy))


_FORKING = """
import multiprocessing, os, sys, threading, time
import torch
from torch.utils.data import DataLoader
from ebmlife import langevin, prepare
from ebmlife.nets import SNGANEnergy

torch.set_num_threads(2)
net = SNGANEnergy(8, 16, 1)
energy, x = prepare(net), torch.randn(300, 1, 8, 8)

def walked():
    return langevin(energy, x, steps=3, step_size=0.1, noise=torch.zeros_like)[0]

expected, stop, walks = walked(), threading.Event(), 0

def forever():
    global walks
    while not stop.is_set():
        assert torch.equal(walked(), expected)
        walks += 1

def child():
    assert torch.equal(walked(), expected)
    assert net.training and all(p.requires_grad for p in net.parameters())
    net(x).sum().backward()

def by_fork():
    pid = os.fork()
    if pid == 0:
        try:
            child()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0

def by_multiprocessing():
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    assert process.exitcode == 0

def by_workers():
    loader = DataLoader(range(8), batch_size=2, num_workers=2, multiprocessing_context="fork")
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]

walkers = [threading.Thread(target=forever) for _ in range(2)]
for walker in walkers:
    walker.start()
for _ in range({times}):
    {how}()
stop.set()
for walker in walkers:
    walker.join()
assert walks
print("done")
"""


@needs_compiler
@pytest.mark.parametrize(("how", "times"), [("by_fork", 20), ("by_multiprocessing", 5), ("by_workers", 2)])
def test_children_that_are_forked_during_a_walk_work(how: str, times: int) -> None:
    program = _FORKING.replace("{how}", how).replace("{times}", str(times))
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert (ran.stdout, ran.returncode) == ("done\n", 0), ran.stderr
