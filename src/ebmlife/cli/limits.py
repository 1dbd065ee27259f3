"""Numbers that no command can mean, refused before any work; and what is larger than the memory, said in one line."""

import argparse
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from ebmlife.errors import BadInput
from ebmlife.recipes.sections import LARGEST

# What torch and numpy say, as RuntimeError or ValueError, of tensors that cannot be.
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
    """BadInput for the first number among the options that is not finite, or larger than any use of it."""
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
    """TensorBoard and others that write to `out` take names of letters only; files that are read may have any."""
    try:
        out.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"--out {out}: the name is not valid UTF-8; choose another one") from error


def quiet_decoders() -> None:
    """Pillow warns of odd tags and sizes with lines of its own code; what it cannot read is said in one of ours."""
    warnings.filterwarnings("ignore", module=r"PIL\.")


@contextmanager
def memory() -> Iterator[None]:
    """Within, what does not fit into the memory, or is nested beyond reading, is a BadInput."""
    try:
        yield
    except RecursionError as error:
        raise BadInput("something that was read is nested too deeply; --debug shows what") from error
    except (MemoryError, OverflowError, RuntimeError, ValueError) as error:
        said = " ".join(str(error).split())
        if isinstance(error, RuntimeError | ValueError) and not any(words in said.lower() for words in _NO_ROOM):
            raise
        advice = "make counts, batches, banks or networks smaller"
        raise BadInput(f"not enough memory ({said or type(error).__name__}); {advice}") from error
