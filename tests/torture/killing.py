"""Kills `ebmlife` before each of its file operations in turn.

    for death in kill_points(lambda n: ["train", "toy-mixture", "--out", str(folder / str(n))], within=folder):
        ...  # the process died before its operation number `death.operation`; look at what it left, and resume

Processes are forked from one that has imported PyTorch already, so that each takes a moment.
"""

import contextlib
import io
import multiprocessing
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from torture.operations import watch_operations

DEATH = 9  # exit code, as after SIGKILL
_PATIENCE = 300  # seconds, after which something hangs
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    ["ebmlife.cli", "torch.utils.tensorboard", "torch._dynamo", "sklearn.datasets", "matplotlib.backends.backend_agg"]
)


@dataclass(frozen=True)
class Ended:
    """How a command ended: `code` is None where it hung, DEATH where it was killed before `operation`."""

    code: int | None
    out: str = ""
    err: str = ""
    operation: int = -1
    what: str = ""  # the operation


def kill_points(command: Callable[[int], Sequence[str]], *, within: Path, step: int = 1) -> Iterator[Ended]:
    """Runs `ebmlife *command(n)`, n = 1, 1 + step, ..., which dies before its n-th operation on files in `within`.

    Yields each death; ends with the first n that the command outlives, which must then end with code 0.
    """
    for n in count(1, step):
        ended = ebmlife(command(n), within=within, die_at=n)
        if ended.code != DEATH:
            assert ended.code == 0, f"{command(n)} ended with {ended.code}: {ended.err}"
            return
        yield ended


def ebmlife(words: Sequence[str], *, within: Path = Path("/"), die_at: int | None = None) -> Ended:
    """`ebmlife *words` in a process of its own, which dies before an operation inside `within`."""
    end, other = _SERVER.Pipe(duplex=False)
    process = _SERVER.Process(target=_child, args=(other, list(words), str(within), die_at))
    process.start()
    other.close()
    said: dict[str, Any] = {}
    try:
        if not end.poll(_PATIENCE):
            process.kill()
            return Ended(None)
        said = pickle.loads(end.recv_bytes())
    except EOFError:  # it was killed from outside
        pass
    process.join(_PATIENCE)
    return Ended(process.exitcode, **said)


def _child(end: Connection, words: list[str], within: str, die_at: int | None) -> None:
    import torch

    from ebmlife.cli import main

    torch.set_num_threads(1)
    out, err = io.StringIO(), io.StringIO()

    def reached(number: int, what: str) -> None:
        if number == die_at:
            end.send_bytes(pickle.dumps({"out": out.getvalue(), "operation": number, "what": what}))
            os._exit(DEATH)

    watch_operations(reached, within=Path(within).resolve())
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except BaseException:  # what a user would see as a traceback
            import traceback

            code = 70
            traceback.print_exc()
    end.send_bytes(pickle.dumps({"out": out.getvalue(), "err": err.getvalue()}))
    sys.stdout.flush()
    os._exit(code)
