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
from ebmlife.errors import BadInput, Diverged, nearest

_NOT_OPTIONS = ("command", "takes_fields", "run", "folder", "name", "files", "folders", "target")
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


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    try:
        return _dispatch([word for word in words if word != "--debug"])
    except (BadInput, OSError) as error:
        if debug:
            raise
        print(f"ebmlife: error: {_one_line(error)}", file=sys.stderr)
        return 2
    except Diverged as error:
        if debug:
            raise
        print(f"ebmlife: diverged: {_one_line(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _dispatch(words: list[str]) -> int:
    parser = _parser()
    options, rest = parser.parse_known_args(words)
    if rest and not options.takes_fields:
        known = ["--help", *(f"--{name.replace('_', '-')}" for name in vars(options) if name not in _NOT_OPTIONS)]
        raise BadInput(f"unknown argument {rest[0]!r}{nearest(rest[0], known)}")
    code: int = options.run(options, changed_fields(rest))
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
