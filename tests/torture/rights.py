"""Commands of root run as nobody: fuzzed ones must not write anywhere, and permissions must mean something."""

import contextlib
import importlib
import os
import pkgutil
import pwd
import sys
from collections.abc import Iterable
from pathlib import Path

NOBODY = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None


def give_away(root: Path) -> None:
    """To the user that commands run as."""
    if NOBODY is not None:
        os.chown(root, NOBODY, -1)
        for folder, folders, files in os.walk(root):
            for name in (*folders, *files):
                os.chown(Path(folder, name), NOBODY, -1, follow_symlinks=False)


_NOT_IMPORTED = {"antigravity", "this", "idlelib", "turtle", "turtledemo", "tkinter", "test", "lib2to3", "ensurepip"}


def learn_standard_library() -> None:
    """Python itself may lie in root's own folder, where children without rights cannot read."""
    if NOBODY is not None:
        names = sorted(name for name in sys.stdlib_module_names - _NOT_IMPORTED if not name.startswith("_"))
        learn(names)
        for name in names:
            parts = pkgutil.iter_modules(getattr(sys.modules.get(name), "__path__", []))
            learn(f"{name}.{part.name}" for part in parts if not part.name.startswith("_") and part.name != "test")


def learn(names: Iterable[str]) -> None:
    """Imports modules, so that children without rights need not."""
    for name in names:
        if name not in sys.modules and name != "__main__":
            with contextlib.suppress(Exception):  # some are made, not imported
                importlib.import_module(name)
