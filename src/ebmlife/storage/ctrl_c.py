"""Ctrl-C on the command line: at any moment the command ends with code 130 and prints no traceback.

This module is imported before all others. Loading PyTorch takes seconds, during which there is nothing to clean up, so
the signal may end the process at once. Programs that import the package are not affected.
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
_received = False  # whether a Ctrl-C was raised as KeyboardInterrupt


def handled(main: Main) -> Callable[..., int]:
    """Wraps the command so that it leaves no unfinished files when it fails or is interrupted."""

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
        _set(signal.SIG_IGN)  # a second Ctrl-C must not interrupt the cleanup
        if code:
            from ebmlife.storage import leftovers  # not earlier: an interrupt may come at the first line

            leftovers.clear()
        _set(signal.SIG_DFL)  # only the interpreter's shutdown is left
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
