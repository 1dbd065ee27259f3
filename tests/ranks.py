"""Functions on several ranks, each in a process of its own, as torchrun would start them."""

import multiprocessing
import os
import pickle
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

from ebmlife.distributed import join

_SERVER = multiprocessing.get_context("forkserver")  # imports once, and forks from a process without threads
_SLOW = ["torch.utils.tensorboard", "torch._dynamo", "sklearn.datasets", "matplotlib.backends.backend_agg"]
_SERVER.set_forkserver_preload(["ebmlife.cli", "conftest", *_SLOW])
_PATIENCE = 240  # seconds, after which something hangs


def on_ranks(function: Callable[..., Any], *arguments: Any, count: int = 2) -> list[Any]:
    """What `function(ranks, *arguments)` returns, or the exception that it raises, on each rank."""
    return started(_joined, function, *arguments, count=count)


def started(function: Callable[..., Any], *arguments: Any, count: int = 2) -> list[Any]:
    """What `function(*arguments)` returns on each rank, with torchrun's environment and no more."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # torchrun's own process has it too
    processes, ends = [], []
    for rank in range(count):
        end, other = _SERVER.Pipe(duplex=False)
        process = _SERVER.Process(
            target=_child, args=(other, rank, count, store.port, function, arguments), daemon=True
        )
        process.start()
        other.close()
        processes.append(process)
        ends.append(end)
    try:
        return [_received(end) for end in ends]
    finally:
        for process in processes:
            process.join(5)
            process.kill()


def _received(end: Connection) -> Any:
    assert end.poll(_PATIENCE), "a rank hangs"
    return pickle.loads(end.recv_bytes())


def _child(
    end: Connection, rank: int, count: int, port: int, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    torch.set_num_threads(1)
    try:
        result = function(*arguments)
    except (Exception, SystemExit) as error:
        result = error
    end.send_bytes(pickle.dumps(result))  # by value: torch's own way shares memory with a process that is about to end


def _joined(function: Callable[..., Any], *arguments: Any) -> Any:
    ranks = join()
    result = function(ranks, *arguments)
    ranks.leave()
    return result
