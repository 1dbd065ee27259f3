"""Limits of options, and errors for missing memory. Options are checked before any work."""

import argparse
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from ebmlife.errors import BadInput
from ebmlife.recipes.sections import LARGEST

# Parts of the messages with which torch and numpy refuse too large tensors, as RuntimeError or ValueError.
_NO_ROOM = (
    "can't allocate memory",
    "out of memory",
    "not enough memory",
    "storage size calculation overflow",
    "integer multiplication overflow",
    "numel: integer",
    "array is too big",
    "maximum allowed dimension",
)


def check(options: argparse.Namespace) -> None:
    """Raises BadInput for the first option that is not finite or is too large."""
    for name, value in vars(options).items():
        if name == "seed" and not 0 <= value < 2**63:
            raise BadInput(f"--seed must be at least 0 and below 2**63, got {value}")
        if name != "seed" and isinstance(value, int) and not isinstance(value, bool) and abs(value) > LARGEST:
            raise BadInput(f"--{name.replace('_', '-')} must be at most {LARGEST}, got {value}")
        if isinstance(value, float) and not math.isfinite(value):
            raise BadInput(f"--{name.replace('_', '-')} must be a finite number, got {value}")
        if name == "out" and value is not None:
            _refuse_undecodable(str(value))


def _refuse_undecodable(out: str) -> None:
    """Raises BadInput for a name that TensorBoard and other writers cannot encode."""
    try:
        out.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"--out {out}: the name is not valid UTF-8; choose another one") from error


def quiet_decoders() -> None:
    """Silences the warnings of Pillow; images that it cannot read raise errors of our own."""
    warnings.filterwarnings("ignore", module=r"PIL\.")


@contextmanager
def memory() -> Iterator[None]:
    """Turns errors from missing memory or deep nesting into BadInput, within a `with` block."""
    try:
        yield
    except RecursionError as error:
        raise BadInput("a file is nested too deeply to be read; add --debug to see which one") from error
    except (MemoryError, OverflowError, RuntimeError, ValueError) as error:
        message = " ".join(str(error).split())
        if isinstance(error, RuntimeError | ValueError) and not any(words in message.lower() for words in _NO_ROOM):
            raise
        advice = "use a smaller count, batch, bank or network"
        raise BadInput(f"not enough memory ({message or type(error).__name__}); {advice}") from error
