"""The command line. User errors become one line and exit code 2; `--debug` shows the traceback instead."""

import argparse
import errno
import sys
from collections.abc import Sequence

from ebmlife import __version__
from ebmlife.cli import (
    attacking,
    defending,
    estimating,
    examining,
    importing,
    limits,
    reporting,
    sampling,
    sharing,
    speed,
    streams,
    training,
)
from ebmlife.cli.parsing import Command, Parser, changed_fields, trusted, unknown
from ebmlife.distributed import SINGLE_PROCESS, Ranks, join
from ebmlife.errors import BadInput, Diverged, Lost, nearest, shown
from ebmlife.storage.atomic import without_temporary_names
from ebmlife.storage.ctrl_c import handled

_NOT_OPTIONS = ("command", "takes_fields", "shared", "run", "folder", "name", "files", "folders", "target")
_GROUPS = (
    training,
    sampling,
    examining,
    defending,
    attacking,
    reporting,
    importing,
    sharing,
    estimating,
    speed,
)  # in the order of `ebmlife --help`


_FAILURES: dict[type[Exception], tuple[str, int]] = {
    BadInput: ("error", 2),
    OSError: ("error", 2),
    Diverged: ("diverged", 1),
    Lost: ("lost a rank", 1),
}


@handled
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code.

    Args:
        arguments: The words after `ebmlife`; by default those of the process.

    Returns:
        0 on success, 1 after a divergence or the loss of a rank, 2 after a user error, 130 after Ctrl-C, and 141 if the
        reader of the output is gone, as in `ebmlife recipes | head -1`.
    """
    streams.open_closed()
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run([word for word in words if word != "--debug"], debug="--debug" in words)
    except (BrokenPipeError, SystemExit) as error:
        if not streams.reader_left(error):
            raise
        return streams.READER_LEFT
    finally:
        streams.discard()


def _run(words: list[str], *, debug: bool) -> int:
    ranks = SINGLE_PROCESS
    try:
        ranks = join()
        code = _printed(words, ranks)
        ranks.leave()
        return code
    except tuple(_FAILURES) as error:
        if debug or streams.reader_left(error):
            raise
        kind, code = next(value for failure, value in _FAILURES.items() if isinstance(error, failure))
        line = _one_line(error)
        if ranks.first_to_print(kind if isinstance(error, Lost) else line):  # all ranks may fail in the same way
            streams.print_error(f"ebmlife: {kind}: {line}")
        return code
    except KeyboardInterrupt:
        print("ebmlife: interrupted", file=sys.stderr, flush=True)
        return 130


def _printed(words: list[str], ranks: Ranks) -> int:
    """Runs the command and flushes what it printed, so that a full device is reported like other errors."""
    try:
        code = _dispatch(words, ranks)
    except SystemExit:  # from --help and --version
        streams.flush()
        raise
    streams.flush()
    return code


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        return f"cannot write the output: {error.strerror}"
    return shown(without_temporary_names(" ".join(str(error).split())))


def _dispatch(words: list[str], ranks: Ranks) -> int:
    with ranks.raise_on_all():
        options, rest = _parser().parse_known_args(words)
        if (word := unknown(rest, options.takes_fields)) is not None:
            known = ["--help", *(f"--{name.replace('_', '-')}" for name in vars(options) if name not in _NOT_OPTIONS)]
            raise BadInput(f"unknown argument {word!r}{nearest(word, known)}")
        changes = changed_fields(rest)
        options.trust = trusted(options, changes)
        limits.check(options)
    limits.quiet_decoders()
    if not ranks.first and not options.shared:
        return 0
    options.ranks = ranks
    with limits.memory():
        code: int = options.run(options, changes)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="ebmlife",
        allow_abbrev=False,
        description="Train, sample and evaluate energy-based models of images, for every length of Langevin chain.",
        epilog="Add --debug to any command to see the traceback of an error.",
    )
    parser.add_argument("--version", action="version", version=f"ebmlife {__version__}")
    command = Command(parser)
    for group in _GROUPS:
        group.register(command)
    return parser
