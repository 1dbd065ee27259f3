"""Commands in children of this process: real ones, to be killed at will, without seconds of imports for each.

This process only imports ebmlife. All work is done in children, since a process that has walked may not be forked.
"""

import contextlib
import ctypes
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from torture.ended import Ended
from torture.rights import NOBODY, give_away, learn

LIMIT = 60.0  # seconds after which a command hangs
_MEMORY = 16 * 2**30  # of addresses; what asks for more is refused by the system
_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl
_libc = ctypes.CDLL(None)

Before = Callable[[], None]  # called in the child, before the command


class Child:
    """A command at work."""

    def __init__(self, pid: int, out: Path, err: Path) -> None:
        self.pid, self._out, self._err, self._began = pid, out, err, time.monotonic()
        self._ended: Ended | None = None

    @property
    def out(self) -> str:
        return self._out.read_text(errors="replace")

    @property
    def err(self) -> str:
        return self._err.read_text(errors="replace")

    def send(self, number: signal.Signals) -> None:
        if self._ended is None:
            os.kill(self.pid, number)

    def wait(self, seconds: float = LIMIT) -> Ended | None:
        """How it ended, or None if it has not after so many seconds."""
        if self._ended is None:
            handle = os.pidfd_open(self.pid)
            try:
                ready, _, _ = select.select([handle], [], [], seconds)
            finally:
                os.close(handle)
            if ready:
                self._ended = self._reaped()
        return self._ended

    def ended(self, seconds: float = LIMIT) -> Ended:
        """How it ended; one that does not is killed."""
        ended = self.wait(seconds)
        if ended is None:
            self._killed()
            ended = self._ended = Ended(None, self.out, self.err, self._age())
        return ended

    def _killed(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def _reaped(self) -> Ended:
        _, status = os.waitpid(self.pid, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # what it may have started
        return Ended(os.waitstatus_to_exitcode(status), self.out, self.err, self._age())

    def _age(self) -> float:
        return time.monotonic() - self._began


class Place:
    """An own little world for commands: `here` is their current folder, beside it are home, temporary files, output."""

    def __init__(self, root: Path, *, cache: Path | None = None, learning: bool = False) -> None:
        """`learning`: children keep this user's rights, and this process imports whatever they had to import."""
        self.root, self.here, self._learning = root, root / "here", learning
        for name in ("home", "tmp", "said"):
            (root / name).mkdir(parents=True, exist_ok=True)
        self.here.mkdir(exist_ok=True)
        self.environment = {
            "HOME": str(root / "home"),
            "TMPDIR": str(root / "tmp"),
            "XDG_CACHE_HOME": str(cache or root / "home" / "cache"),
            "EBMLIFE_HUB": "hub",
        }
        self.kept: dict[Path, int] = {}  # files that belong to another user, by number
        self._count = 0

    def run(self, *words: str, before: Before | None = None, limit: float = LIMIT) -> Ended:
        ended = self.start(*words, before=before).ended(limit)
        if self._learning:
            learn((self.root / "modules").read_text().split())
        return ended

    def start(self, *words: str, before: Before | None = None) -> Child:
        """Begins `ebmlife WORDS`; it is past its imports when this returns."""
        self._count += 1
        out, err = (self.root / "said" / f"{os.getpid()}-{self._count}.{name}" for name in ("out", "err"))
        if not self._learning:
            give_away(self.root)
            for file, owner in self.kept.items():
                os.chown(file, owner, -1)
        sys.stdout.flush()
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                self._prepare(out, err)
                os.write(writing, b".")
                code = _call(words, before)
                if self._learning:
                    (self.root / "modules").write_text("\n".join(sys.modules))
            except BaseException:
                traceback.print_exc()
                code = 99
            os._exit(code)
        os.close(writing)
        os.read(reading, 1)
        os.close(reading)
        return Child(pid, out, err)

    def _prepare(self, out: Path, err: Path) -> None:
        os.setpgid(0, 0)
        _libc.prctl(_DIES_WITH_PARENT, signal.SIGKILL)
        for number, file in ((1, out), (2, err)):
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
            os.dup2(descriptor, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout, sys.stderr = (os.fdopen(n, "w", buffering=1, errors="backslashreplace") for n in (1, 2))
        os.environ.update(self.environment)
        os.environ["PATH"] = f"{self.root / 'bin'}:{os.environ['PATH']}"
        tempfile.tempdir = None  # as TMPDIR says
        os.chdir(self.here)
        sys.path.insert(0, "")  # as `python -m` does
        if NOBODY is not None and not self._learning:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            _libc.prctl(_DIES_WITH_PARENT, signal.SIGKILL)  # which a change of user takes back
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _call(words: Sequence[str], before: Before | None) -> int:
    """`main`, with what Python does around it."""
    from ebmlife.cli import main

    if before is not None:
        before()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code: object = main(words)
    except SystemExit as asked:
        code = asked.code
    except KeyboardInterrupt as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            traceback.print_exc()
        code = 130
    except BaseException:
        traceback.print_exc()
        code = 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code if isinstance(code, int) else 0 if code is None else 1


@contextlib.contextmanager
def empty_place(*, cache: Path | None = None, beside: Path) -> Iterator[Place]:
    """A place that is removed afterwards."""
    root = Path(tempfile.mkdtemp(prefix="case-", dir=beside))
    try:
        yield Place(root, cache=cache)
    finally:
        shutil.rmtree(root, ignore_errors=True)
