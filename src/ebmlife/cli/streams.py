"""Standard output and error of a command: closed streams, broken pipes and full devices."""

import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from ebmlife.errors import BadInput

READER_LEFT = 128 + signal.SIGPIPE  # exit code that a shell reports for a program killed by SIGPIPE


def open_closed() -> None:
    """Opens closed standard streams on the null device, so that no other file gets their descriptors."""
    while True:
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor > 2:
            os.close(descriptor)
            break
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123  # it lives as long as the process


def reader_left(error: BaseException) -> bool:
    """Whether the command ended because nobody reads its output anymore, as in `ebmlife recipes | head -1`.

    rich turns the broken pipe into a SystemExit of its own. Pipes to other processes can break too: only those of the
    standard streams count.
    """
    cause = error.__context__ if isinstance(error, SystemExit) else error
    return isinstance(cause, BrokenPipeError) and any(map(_broken, (sys.stdout, sys.stderr)))


def flush() -> None:
    """Flushes standard output; raises BadInput if the device does not accept it."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise BadInput(f"cannot write the output: {error.strerror}") from error


def discard() -> None:
    """Drops output that cannot be written. Otherwise the interpreter would try again at exit and print an error."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            _redirect(stream)


def print_error(line: str) -> None:
    """Prints a line to standard error and ignores failures."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def _redirect(stream: TextIO) -> None:
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def _broken(stream: TextIO) -> bool:
    """Whether the reader of its pipe is gone, or rich has redirected it to the null device already."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # it was replaced by an object that is not a file
        return True
    poll = select.poll()
    poll.register(descriptor, 0)
    gone = any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    return gone or os.path.samestat(os.fstat(descriptor), Path(os.devnull).stat())
