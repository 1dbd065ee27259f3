"""Energy-based models of images, for every length of Langevin chain.

Each name is imported when it is first used, so that `import ebmlife` is quick. The rooms of the package, and which may
import which, are drawn in CONTRIBUTING.md.
"""

__version__ = "0.1.0"

from ebmlife.storage import ctrl_c as ctrl_c  # first: the others take seconds to load

# isort: split
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ebmlife import attacks, data, exam, nets, training
    from ebmlife.defense import DefendedClassifier, Purifier
    from ebmlife.errors import BadInput, Diverged
    from ebmlife.runs.build import load
    from ebmlife.runs.model import Model
    from ebmlife.sampling.fast import prepare
    from ebmlife.sampling.loop import langevin
    from ebmlife.sampling.rng import seeded
    from ebmlife.sharing import importers

__all__ = [
    "BadInput",
    "DefendedClassifier",
    "Diverged",
    "Model",
    "Purifier",
    "__version__",
    "attacks",
    "data",
    "exam",
    "importers",
    "langevin",
    "load",
    "nets",
    "prepare",
    "seeded",
    "training",
]

_NAMES = {
    "BadInput": "errors",
    "DefendedClassifier": "defense",
    "Diverged": "errors",
    "Model": "runs.model",
    "Purifier": "defense",
    "langevin": "sampling.loop",
    "load": "runs.build",
    "prepare": "sampling.fast",
    "seeded": "sampling.rng",
}
_EARLIER_PATHS = {  # module paths of earlier versions, which scripts may import
    "chains": "training.chains",
    "classifiers": "defense.classifiers",
    "energy": "sampling.energy",
    "importers": "sharing.importers",
    "langevin": "sampling.loop",
    "learner": "training.learner",
    "pictures": "plots",
    "randomness": "sampling.rng",
    "starts": "training.starts",
    "trainer": "training.ebm",
    "zoo": "runs.zoo",
}


class _Moved(ModuleType):
    """A placeholder in `sys.modules` at a module's earlier path. It loads the module from its new path."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(import_module(f"{__name__}.{_EARLIER_PATHS[self.__name__.rpartition('.')[2]]}"), name)


sys.modules.update({path: _Moved(path) for path in (f"{__name__}.{name}" for name in _EARLIER_PATHS)})


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
    if name in _EARLIER_PATHS:
        return import_module(f"{__name__}.{_EARLIER_PATHS[name]}")
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
