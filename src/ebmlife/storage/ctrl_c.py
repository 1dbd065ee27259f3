"""Ctrl-C on the command line: the command ends with code 130 and prints no traceback, whenever it comes.

This module is imported before all others: loading PyTorch takes seconds, in which there is nothing to tidy up, and the
signal may simply end the process. Only `ebmlife` itself is concerned, no program that imports the package.
"""

import functools
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType

Main = Callable[[Sequence[str] | None], int]


def _is_command() -> bool:
    """Whether this process is `ebmlife` or `python -m ebmlife`."""
    words = sys.orig_argv
    by_module = "-m" in words and words[words.index("-m") + 1 :][:1] == ["ebmlife"]
    return by_module or os.path.basename(sys.argv[0]) == "ebmlife"  # noqa: PTH119 (pathlib is not loaded yet)


_COMMAND = _is_command()
_received = False  # a Ctrl-C that was raised as KeyboardInterrupt


def handled(main: Main) -> Callable[..., int]:
    """The command; when it fails or is interrupted, it leaves nothing unfinished behind."""

    @functools.wraps(main)
    def command(arguments: Sequence[str] | None = None) -> int:
        try:
            _set(_interrupt)
            code = main(arguments)
        except KeyboardInterrupt:
            code = 130
        except Exception:  # compiled libraries turn a KeyboardInterrupt into an error of their own
            if not _received:
                raise
            print("ebmlife: interrupted", file=sys.stderr, flush=True)
            code = 130
        _set(signal.SIG_IGN)  # once is enough
        if code:
            from ebmlife.storage import leftovers  # not before: an interrupt may come at the very first line

            leftovers.clear()
        _set(signal.SIG_DFL)  # what is left is the interpreter's own end
        return code

    return command


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _received
    _received = True
    signal.default_int_handler(number, frame)


def _set(handler: "signal.Handlers | Callable[..., object]") -> None:
    if _COMMAND:
        signal.signal(signal.SIGINT, handler)


_set(signal.SIG_DFL)
