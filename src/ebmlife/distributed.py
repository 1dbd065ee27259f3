"""Processes that share one piece of work, as torchrun starts them: `torchrun --nproc-per-node N -m ebmlife ...`.

Code that shares work is given its rank's part of it, or a function that averages; only `Ranks` knows the number of
processes. Gradients are averaged by PyTorch's collectives: gloo between CPUs, NCCL between GPUs.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from ebmlife.errors import BadInput, Diverged, Lost

_TIMEOUT = timedelta(minutes=30)  # the first rank draws pictures and scores samples while the others wait
_DIVERGED = b"diverged: "  # prefix of a message that is raised as Diverged


@dataclass(frozen=True)
class Ranks:
    """The rank of this process among those that share the work."""

    rank: int = 0
    count: int = 1
    local: int = 0  # rank among the processes of this machine
    store: Any = field(default=None, repr=False, compare=False)  # the key-value store of torch.distributed

    @property
    def first(self) -> bool:
        """Whether this is the first process, which writes files and prints."""
        return self.rank == 0

    def part(self, total: int) -> slice:
        """Returns this rank's consecutive part of `total` items; the sizes of the parts differ by at most one."""
        return slice(total * self.rank // self.count, total * (self.rank + 1) // self.count)

    def share(self, total: int) -> int:
        """Returns the number of items in this rank's part of `total`."""
        return len(range(total)[self.part(total)])

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replaces each tensor by its mean over ranks, in one message for all tensors."""
        if self.count == 1 or not tensors:
            return
        flat = self.sum(torch.cat([tensor.detach().reshape(-1) for tensor in tensors])) / self.count
        with torch.no_grad():
            for tensor, mean in zip(tensors, torch.split(flat, [t.numel() for t in tensors]), strict=True):
                tensor.copy_(mean.view_as(tensor))

    def sum(self, tensor: Tensor) -> Tensor:
        """Returns the sum over ranks, with the same bits on each of them."""
        if self.count == 1:
            return tensor
        total = tensor.detach().clone()
        with _needs_all_ranks():
            dist.all_reduce(total)
        return total

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on some rank."""
        return bool(self.sum(torch.tensor(float(flag))).item())

    def from_rank0(self, number: int | None) -> int | None:
        """Returns the first rank's number, on every rank."""
        sent = torch.tensor([0 if number is None else 1, number or 0]) * self.first
        given, value = self.sum(sent).tolist()
        return int(value) if given else None

    def gather(self, mine: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        """Returns every rank's tensors, on every rank."""
        if self.count == 1:
            return [mine]
        plain = {name: value.detach().cpu().contiguous() for name, value in mine.items()}
        return [load(data) for data in self._gather(save(plain))]

    def in_order(self, functions: Sequence[Callable[[], Tensor]]) -> Iterator[Tensor]:
        """Yields the results of all functions, in order, on every rank; each function is called on one rank only."""
        for begin in range(0, len(functions), self.count):
            mine = begin + self.rank
            for results in self.gather({"result": functions[mine]()} if mine < len(functions) else {}):
                yield from results.values()

    @contextmanager
    def raise_on_all(self, *, unevenly: bool = False) -> Iterator[None]:
        """Lets each rank work independently within a `with` block.

        If one rank raises BadInput, OSError or Diverged, all of them do.

        With `unevenly`, some ranks may finish hours before others.
        """
        if self.count == 1:
            yield
            return
        raised: Exception | None = None
        try:
            yield
        except (BadInput, OSError, Diverged) as error:
            raised = error
        if unevenly:
            self.barrier()
        own = b"" if raised is None else (str(raised) or type(raised).__name__).encode()
        for message in filter(None, self._gather(_DIVERGED + own if isinstance(raised, Diverged) else own)):
            error_type = Diverged if message.startswith(_DIVERGED) else BadInput
            raise error_type(message.removeprefix(_DIVERGED).decode()) from raised

    @contextmanager
    def on_rank0(self, manager: AbstractContextManager[object]) -> Iterator[None]:
        """Enters `manager` on the first rank, within a `with` block. If that fails, all ranks raise its error."""
        with ExitStack() as stack:
            with self.raise_on_all():
                if self.first:
                    stack.enter_context(manager)
            yield

    def barrier(self) -> None:
        """Waits for all ranks without a time limit, which PyTorch's own barrier has."""
        if self.count == 1:
            return
        with _needs_all_ranks():
            arrived = self.store.add("ebmlife/barrier", 1)
            expected = (
                -(-arrived // self.count) * self.count
            )  # no rank reaches a later barrier before all have reached this one
            pause = 0.001
            while self.store.add("ebmlife/barrier", 0) < expected:
                time.sleep(pause)
                pause = min(2 * pause, 1.0)

    @contextmanager
    def rank0_first(self) -> Iterator[None]:
        """Runs a `with` block on the first process of each machine, then on the others, which use its downloads."""
        if self.local:
            self.any(False)
        try:
            yield
        finally:
            if not self.local:
                self.any(False)

    def _gather(self, mine: bytes) -> list[bytes]:
        """Returns every rank's bytes, sent between CPUs and never pickled."""
        lengths = torch.zeros(self.count, dtype=torch.int64)
        lengths[self.rank] = len(mine)
        lengths = self.sum(lengths)
        sent = torch.frombuffer(bytearray(mine.ljust(max(1, int(lengths.max())))), dtype=torch.uint8)
        received = [torch.empty_like(sent) for _ in range(self.count)]
        with _needs_all_ranks():
            dist.all_gather(received, sent)
        return [data[:length].numpy().tobytes() for data, length in zip(received, lengths.tolist(), strict=True)]

    def first_to_print(self, about: str) -> bool:
        """Whether this rank is the first to print this text."""
        if self.store is None:
            return True
        try:
            first: bytes = self.store.compare_set(f"ebmlife/{about}", "", str(self.rank))
            return int(first) == self.rank
        except RuntimeError:  # the process that held the store has ended
            return True

    def leave(self) -> None:
        """Leaves the group at a successful end; after an error this could wait for ranks that have ended."""
        if self.count > 1:
            dist.destroy_process_group()

    def __deepcopy__(self, memo: dict[int, object]) -> "Ranks":
        return self  # a process has only one


SINGLE_PROCESS = Ranks()


def join() -> Ranks:
    """Joins the ranks that torchrun started; returns `SINGLE_PROCESS` if torchrun did not start this process."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR")
    if not all(name in os.environ for name in names):
        return SINGLE_PROCESS
    rank, count, local = (int(os.environ[name]) for name in names[:3])
    if count == 1:
        return SINGLE_PROCESS
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(local % torch.cuda.device_count())
    with _needs_all_ranks():
        store, _, _ = next(rendezvous("env://", rank, count, timeout=_TIMEOUT))
        # torchrun may keep one store over its restarts: entries of ranks that have ended must not be read.
        store = dist.PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)  # type: ignore[attr-defined]
        backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=_TIMEOUT)
    return Ranks(rank, count, local, store)


@contextmanager
def _needs_all_ranks() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # from gloo, NCCL or the network: another rank did not answer
        raise Lost(str(error)) from error
