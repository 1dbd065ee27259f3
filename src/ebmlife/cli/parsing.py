"""Declaration of commands. Each module with commands has a function `register` that adds them."""

import argparse
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from ebmlife.errors import BadInput
from ebmlife.recipes.sections import LARGEST
from ebmlife.runs.user_code import Trust, is_import_path
from ebmlife.sampling.kernels import SAMPLERS

Run = Callable[[argparse.Namespace, dict[str, str]], int]  # options, changed fields of the recipe -> exit code
_TRUST = "A function that the loaded model may call as its generator; can be repeated."
_FIELDS = "Any field of the recipe can follow, such as --langevin.steps 50; `ebmlife show NAME` lists them."


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message}; see {self.prog} --help")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Prints --help and --version. argparse's own version ignores errors, such as those of a full device."""
        if message:
            (file or sys.stderr).write(message)


class Command:
    """Declares commands: `command(name, run, about)` adds one and returns its parser."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser, metavar="COMMAND")

    def __call__(
        self,
        name: str,
        run: Run,
        about: str,
        *,
        fields: bool | str = False,
        shared: bool = False,
        loads: bool = True,
    ) -> argparse.ArgumentParser:
        """Adds a command.

        Args:
            name: The word after `ebmlife`.
            run: The function that runs the command.
            about: What the command does, such as "draw samples from a model".
            fields: Which recipe fields may follow: all of them (True), or those of one section (its name).
            shared: Whether all ranks of torchrun take part, as `options.ranks`, and not only the first one.
            loads: Whether a model or a run is loaded; `options.trust` is what --trust-code allows it to call.

        Returns:
            The parser of the command, for its arguments.
        """
        epilog = _FIELDS if fields is True else None
        sentence = f"{about[0].upper()}{about[1:]}."
        added = self._commands.add_parser(name, help=about, description=sentence, epilog=epilog, allow_abbrev=False)
        added.set_defaults(run=run, takes_fields=fields, shared=shared, trust_code=[])
        if loads:
            added.add_argument("--trust-code", action="append", metavar="MODULE:FUNCTION", help=_TRUST)
        return added


def changed_fields(rest: list[str]) -> dict[str, str]:
    """Parses fields of the recipe: ['--a.b', '1', '--c=2', '--d'] -> {'a.b': '1', 'c': '2', 'd': 'true'}."""
    changes: dict[str, str] = {}
    words = list(rest)
    while words:
        name, equals, value = words.pop(0).partition("=")
        if not name.startswith("--"):
            raise BadInput(f"unexpected argument {name!r}; fields of the recipe are given as --field value")
        if not equals:
            value = words.pop(0) if words and not words[0].startswith("--") else "true"
        changes[name[2:].replace("-", "_")] = value
    return changes


def add_weights_options(parser: argparse.ArgumentParser, *, also: str = "") -> None:
    """Adds --raw, and --as-authors, which implies it. `raw_weights` combines them."""
    parser.add_argument("--raw", action="store_true", help="Use the raw weights instead of their moving average.")
    about = f"Use the settings of the authors' code: --raw{also}; see docs/paper.md."
    parser.add_argument("--as-authors", action="store_true", help=about)


def add_sampler_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sampler",
        choices=tuple(SAMPLERS),
        default="langevin",
        help="Sampling kernel; all but langevin have a Metropolis test and need an energy (default: %(default)s).",
    )


def raw_weights(options: argparse.Namespace) -> bool:
    """Whether the options choose raw weights."""
    return bool(options.raw or options.as_authors)


def unknown(rest: list[str], fields: bool | str) -> str | None:
    """Returns the first word that is neither a field which the command takes nor the value of one."""
    if fields is True or not rest:
        return None
    names = [word for word in rest if word.startswith("--")] if fields else []
    others = [name for name in names if not name.startswith(f"--{fields}.")]
    return others[0] if others else None if names and rest[0] == names[0] else rest[0]


def trusted(options: argparse.Namespace, changes: dict[str, str]) -> Trust:
    """Returns the functions that the user named, with --trust-code or as a field of the recipe."""
    return Trust.of([*options.trust_code, *filter(is_import_path, changes.values())])


def counts(text: str, option: str = "--steps") -> list[int]:
    """Parses integers that are separated by commas."""
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError as error:
        raise BadInput(f"{option} takes whole numbers separated by commas, not {text!r}") from error
    if max(map(abs, numbers)) > LARGEST:
        raise BadInput(f"{option} takes whole numbers of at most {LARGEST}, not {text!r}")
    return numbers
