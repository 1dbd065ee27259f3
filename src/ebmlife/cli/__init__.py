"""The command line. Mistakes become one line and exit code 2; `--debug` shows the traceback instead."""

import argparse
import sys
from collections.abc import Sequence

from ebmlife import __version__
from ebmlife.cli import (
    attacking,
    defending,
    estimating,
    examining,
    importing,
    reporting,
    sampling,
    sharing,
    speed,
    training,
)
from ebmlife.cli.parsing import Parser, adder, changed_fields
from ebmlife.distributed import ALONE, Ranks, join
from ebmlife.errors import BadInput, Diverged, Lost, nearest

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


_FAILURES = {BadInput: ("error", 2), OSError: ("error", 2), Diverged: ("diverged", 1), Lost: ("a rank is gone", 1)}


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug, ranks = "--debug" in words, ALONE
    try:
        ranks = join()
        code = _dispatch([word for word in words if word != "--debug"], ranks)
        ranks.leave()
        return code
    except tuple(_FAILURES) as error:
        if debug:
            raise
        kind, code = next(value for failure, value in _FAILURES.items() if isinstance(error, failure))
        line = _one_line(error)
        if ranks.speaks(kind if isinstance(error, Lost) else line):  # all ranks may have the same to say
            print(f"ebmlife: {kind}: {line}", file=sys.stderr, flush=True)
        return code
    except KeyboardInterrupt:
        return 130


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _dispatch(words: list[str], ranks: Ranks) -> int:
    with ranks.together():
        options, rest = _parser().parse_known_args(words)
        if rest and not options.takes_fields:
            known = ["--help", *(f"--{name.replace('_', '-')}" for name in vars(options) if name not in _NOT_OPTIONS)]
            raise BadInput(f"unknown argument {rest[0]!r}{nearest(rest[0], known)}")
        changes = changed_fields(rest)
    if not ranks.first and not options.shared:
        return 0
    options.ranks = ranks
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
