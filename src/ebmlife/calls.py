"""Functions of the user's own, named as package.module:function."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ebmlife.errors import BadInput, nearest


def is_call(name: str) -> bool:
    module, colon, function = name.partition(":")
    return bool(colon) and function.isidentifier() and all(word.isidentifier() for word in module.split("."))


def find_call(name: str) -> Callable[..., Any]:
    """The function of that name; the working directory is looked through as Python itself would."""
    module_name, _, function = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise BadInput(f"{name}: {error}; expected package.module:function that Python can import") from error
    except Exception as error:  # whatever the user's own module does
        raise BadInput(
            f"{name}: {module_name} fails with {type(error).__name__}: {error}; --debug shows where"
        ) from error
    found = getattr(module, function, None)
    if not callable(found):
        known = [word for word, value in vars(module).items() if callable(value)]
        raise BadInput(f"{name}: {module_name} has no function {function!r}{nearest(function, known)}")
    called: Callable[..., Any] = found
    return called
