"""The command line. Mistakes become one line and exit code 2; `--debug` shows the traceback instead."""

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
from ebmlife.cli.parsing import Parser, adder, changed_fields, trusted, unknown
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
    Lost: ("a rank is gone", 1),
}


@handled
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code: 0, or 1 and 2 for the failures above, 130 after Ctrl-C, 141 where the
    reader of its output has left."""
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
        if ranks.is_first_to_say(kind if isinstance(error, Lost) else line):  # all ranks may have the same to say
            streams.say(f"ebmlife: {kind}: {line}")
        return code
    except KeyboardInterrupt:
        print("ebmlife: interrupted", file=sys.stderr, flush=True)
        return 130


def _printed(words: list[str], ranks: Ranks) -> int:
    """Runs the command. What it printed leaves the buffer here, where a full device can still be said."""
    try:
        code = _dispatch(words, ranks)
    except SystemExit:  # of --help and --version
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
        if (strange := unknown(rest, options.takes_fields)) is not None:
            known = ["--help", *(f"--{name.replace('_', '-')}" for name in vars(options) if name not in _NOT_OPTIONS)]
            raise BadInput(f"unknown argument {strange!r}{nearest(strange, known)}")
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
        description="Energy-based models of images, for every length of Langevin chain.",
        epilog="--debug, anywhere, shows the traceback of an error.",
    )
    parser.add_argument("--version", action="version", version=f"ebmlife {__version__}")
    command = adder(parser.add_subparsers(dest="command", required=True, parser_class=Parser, metavar="COMMAND"))
    for group in _GROUPS:
        group.register(command)
    return parser
