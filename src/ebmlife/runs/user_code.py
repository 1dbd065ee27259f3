"""Functions of the user, named as package.module:function. Only this module imports code by name.

A name that the user types is imported by `import_object`. A name that was read from a file (a recipe in a checkpoint,
a model from the hub) is imported by `Trust.find`, which refuses it unless the user has typed the same name.
"""

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

from ebmlife.errors import BadInput, nearest


def is_import_path(name: str) -> bool:
    """Whether the name has the form package.module:function."""
    module, colon, function = name.partition(":")
    return bool(colon) and function.isidentifier() and all(word.isidentifier() for word in module.split("."))


def import_object(name: str) -> Callable[..., Any]:
    """Imports a function whose name the user typed. The working directory is searched first, as by Python itself."""
    return _imported(name, here_first=True)


@dataclass(frozen=True)
class Trust:
    """The functions that files may call: those whose names the user has typed, and none by default."""

    calls: frozenset[str] = frozenset()

    @classmethod
    def of(cls, names: Union[str, Iterable[str], "Trust"]) -> "Trust":
        """Returns a Trust from one name, several names, or another Trust."""
        if isinstance(names, Trust):
            return names
        found = frozenset([names] if isinstance(names, str) else names)
        for name in sorted(found):
            if not is_import_path(name):
                raise BadInput(f"trusted code must be named package.module:function, got {name!r}")
        return cls(found)

    def find(self, name: str, field: str) -> Callable[..., Any]:
        """Imports the function that a field of a recipe names. Raises BadInput unless the user has typed its name.

        Installed modules are searched before the working directory, which may hold a downloaded model.
        """
        if not is_import_path(name):
            raise BadInput(f"{field} is {name!r}; expected package.module:function")
        if name not in self.calls:
            raise BadInput(
                f"{field} names the function {name}, and code that a file names is not run; if you trust this "
                f'function, add --trust-code {name}, or use load(..., trust_code="{name}") in Python'
            )
        return _imported(name, here_first=False)


NOTHING = Trust()


def _imported(name: str, *, here_first: bool) -> Callable[..., Any]:
    module_name, _, function = name.partition(":")
    try:
        with _searching_here(first=here_first):
            module = importlib.import_module(module_name)
    except ImportError as error:
        raise BadInput(f"{name}: {error}; expected package.module:function that Python can import") from error
    except Exception as error:  # the user's module may raise anything
        raise BadInput(
            f"{name}: {module_name} fails with {type(error).__name__}: {error}; --debug shows where"
        ) from error
    found = getattr(module, function, None)
    if not callable(found):
        known = [word for word, value in vars(module).items() if callable(value)]
        raise BadInput(f"{name}: {module_name} has no function {function!r}{nearest(function, known)}")
    called: Callable[..., Any] = found
    return called


@contextmanager
def _searching_here(*, first: bool) -> Iterator[None]:
    """Puts the working directory on Python's path within a `with` block. Afterwards it stays at the end of the path.

    The function may import other modules there when it is called, but none of them can replace an installed package.
    """
    here, before = str(Path.cwd()), [*sys.path]
    others = [place for place in before if place not in ("", here)]
    sys.path[:] = [here, *others] if first else [*others, here]
    try:
        yield
    finally:
        sys.path[:] = before if len(others) < len(before) else [*before, here]
