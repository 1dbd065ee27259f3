"""Processes that share one piece of work, as torchrun starts them: `torchrun --nproc-per-node N -m ebmlife ...`.

Whoever shares is handed what belongs to its rank, or a function that averages; only `Ranks` knows how many there are.
Gradients go by PyTorch's own collectives: gloo between CPUs, NCCL between GPUs.
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

_PATIENCE = timedelta(minutes=30)  # the first rank draws pictures and scores samples while the others wait
_DIVERGED = b"diverged: "  # goes before what is said of a divergence


@dataclass(frozen=True)
class Ranks:
    rank: int = 0
    count: int = 1
    local: int = 0  # rank among the processes of this machine
    store: Any = field(default=None, repr=False, compare=False)  # torch.distributed's, which all ranks can read

    @property
    def first(self) -> bool:
        """Whether this process writes and speaks for all."""
        return self.rank == 0

    def part(self, total: int) -> slice:
        """This rank's share of `total` things in a row; shares differ by one at most."""
        return slice(total * self.rank // self.count, total * (self.rank + 1) // self.count)

    def share(self, total: int) -> int:
        return len(range(total)[self.part(total)])

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Each tensor becomes its mean over ranks, in place: one message for all of them."""
        if self.count == 1 or not tensors:
            return
        flat = self.sum(torch.cat([tensor.detach().reshape(-1) for tensor in tensors])) / self.count
        with torch.no_grad():
            for tensor, mean in zip(tensors, torch.split(flat, [t.numel() for t in tensors]), strict=True):
                tensor.copy_(mean.view_as(tensor))

    def sum(self, tensor: Tensor) -> Tensor:
        """Over ranks, the same bits on each of them."""
        if self.count == 1:
            return tensor
        total = tensor.detach().clone()
        with _others_needed():
            dist.all_reduce(total)
        return total

    def any(self, flag: bool) -> bool:
        """Whether it holds on some rank."""
        return bool(self.sum(torch.tensor(float(flag))).item())

    def from_rank0(self, number: int | None) -> int | None:
        """The first rank's number, on every rank."""
        sent = torch.tensor([0 if number is None else 1, number or 0]) * self.first
        there, value = self.sum(sent).tolist()
        return int(value) if there else None

    def gather(self, mine: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        """Every rank's tensors, on every rank."""
        if self.count == 1:
            return [mine]
        plain = {name: value.detach().cpu().contiguous() for name, value in mine.items()}
        return [load(data) for data in self._gather(save(plain))]

    def in_order(self, makers: Sequence[Callable[[], Tensor]]) -> Iterator[Tensor]:
        """What each of `makers` makes, in their order, on every rank; each is called on one rank only."""
        for begin in range(0, len(makers), self.count):
            mine = begin + self.rank
            for made in self.gather({"made": makers[mine]()} if mine < len(makers) else {}):
                yield from made.values()

    @contextmanager
    def raise_on_all(self, *, unevenly: bool = False) -> Iterator[None]:
        """Within, each rank works by itself; if one makes a mistake or diverges, all of them raise it.

        `unevenly`: some may be done hours before others.
        """
        if self.count == 1:
            yield
            return
        mistake: Exception | None = None
        try:
            yield
        except (BadInput, OSError, Diverged) as error:
            mistake = error
        if unevenly:
            self.barrier()
        said = b"" if mistake is None else (str(mistake) or type(mistake).__name__).encode()
        for message in filter(None, self._gather(_DIVERGED + said if isinstance(mistake, Diverged) else said)):
            kind = Diverged if message.startswith(_DIVERGED) else BadInput
            raise kind(message.removeprefix(_DIVERGED).decode()) from mistake

    @contextmanager
    def on_rank0(self, manager: AbstractContextManager[object]) -> Iterator[None]:
        """Within, the first rank is inside `manager`. If that cannot be entered, all ranks raise its error."""
        with ExitStack() as stack:
            with self.raise_on_all():
                if self.first:
                    stack.enter_context(manager)
            yield

    def barrier(self) -> None:
        """Waits for all ranks, however long: PyTorch's own messages give up after a while."""
        if self.count == 1:
            return
        with _others_needed():
            arrived = self.store.add("ebmlife/met", 1)
            all_there = -(-arrived // self.count) * self.count  # nobody is at a later meeting before all were at this
            pause = 0.001
            while self.store.add("ebmlife/met", 0) < all_there:
                time.sleep(pause)
                pause = min(2 * pause, 1.0)

    @contextmanager
    def rank0_first(self) -> Iterator[None]:
        """Within, the first process of each machine goes ahead of its others: what it downloads or caches is there."""
        if self.local:
            self.any(False)
        try:
            yield
        finally:
            if not self.local:
                self.any(False)

    def _gather(self, mine: bytes) -> list[bytes]:
        """Every rank's bytes. They go between CPUs, and are not pickled."""
        lengths = torch.zeros(self.count, dtype=torch.int64)
        lengths[self.rank] = len(mine)
        lengths = self.sum(lengths)
        sent = torch.frombuffer(bytearray(mine.ljust(max(1, int(lengths.max())))), dtype=torch.uint8)
        received = [torch.empty_like(sent) for _ in range(self.count)]
        with _others_needed():
            dist.all_gather(received, sent)
        return [data[:length].numpy().tobytes() for data, length in zip(received, lengths.tolist(), strict=True)]

    def is_first_to_say(self, about: str) -> bool:
        """Whether this rank is the first that has this to say."""
        if self.store is None:
            return True
        try:
            speaker: bytes = self.store.compare_set(f"ebmlife/{about}", "", str(self.rank))
            return int(speaker) == self.rank
        except RuntimeError:  # whoever kept the store is gone
            return True

    def leave(self) -> None:
        """At a good end; after an error it could wait for ranks that will not come."""
        if self.count > 1:
            dist.destroy_process_group()

    def __deepcopy__(self, memo: dict[int, object]) -> "Ranks":
        return self  # a process has one


SINGLE_PROCESS = Ranks()


def join() -> Ranks:
    """The ranks among which torchrun started this process; `SINGLE_PROCESS` where it did not."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR")
    if not all(name in os.environ for name in names):
        return SINGLE_PROCESS
    rank, count, local = (int(os.environ[name]) for name in names[:3])
    if count == 1:
        return SINGLE_PROCESS
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(local % torch.cuda.device_count())
    with _others_needed():
        store, _, _ = next(rendezvous("env://", rank, count, timeout=_PATIENCE))
        # torchrun may keep one store over its restarts: addresses and counts of ranks that are gone must not be read.
        store = dist.PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)  # type: ignore[attr-defined]
        backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=_PATIENCE)
    return Ranks(rank, count, local, store)


@contextmanager
def _others_needed() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # of gloo, NCCL or the network: whatever it is, another rank did not answer
        raise Lost(str(error)) from error
