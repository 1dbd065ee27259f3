"""Functions of the user's own, named as package.module:function. This is the only place where such a name becomes code.

A name that the user types is looked up by `import_object`. A name that was read from a file (a recipe in a checkpoint,
a model from the hub) goes through `Trust.find`, which refuses it unless the user has typed that very name too.
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
    module, colon, function = name.partition(":")
    return bool(colon) and function.isidentifier() and all(word.isidentifier() for word in module.split("."))


def import_object(name: str) -> Callable[..., Any]:
    """The function of a name that the user typed; the working directory is searched first, as Python itself would."""
    return _imported(name, here_first=True)


@dataclass(frozen=True)
class Trust:
    """The functions that files may name: those whose names the user has typed. By default there are none."""

    calls: frozenset[str] = frozenset()

    @classmethod
    def of(cls, names: Union[str, Iterable[str], "Trust"]) -> "Trust":
        """From one name, from several, or from what is a Trust already."""
        if isinstance(names, Trust):
            return names
        found = frozenset([names] if isinstance(names, str) else names)
        for name in sorted(found):
            if not is_import_path(name):
                raise BadInput(f"only package.module:function can be trusted as code, not {name!r}")
        return cls(found)

    def find(self, name: str, field: str) -> Callable[..., Any]:
        """The function that a field of a recipe names, or BadInput unless the user has typed its name.

        Installed modules come before the working directory, which may be the folder of a model that was downloaded.
        """
        if not is_import_path(name):
            raise BadInput(f"{field} is {name!r}; expected package.module:function")
        if name not in self.calls:
            raise BadInput(
                f"{field} names the function {name}, and code that a file names is not run; if you know this function "
                f'and want it, add --trust-code {name}, or load(..., trust_code="{name}") in Python'
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


@contextmanager
def _searching_here(*, first: bool) -> Iterator[None]:
    """The working directory on Python's path during an import. Afterwards it stays at the end of the path: the function
    may import its neighbors when it is called, but no file there can stand in for an installed package."""
    here, before = str(Path.cwd()), [*sys.path]
    others = [place for place in before if place not in ("", here)]
    sys.path[:] = [here, *others] if first else [*others, here]
    try:
        yield
    finally:
        sys.path[:] = before if len(others) < len(before) else [*before, here]
