"""What is known about a data set without reading it, declared beside the function that reads it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

_Make = TypeVar("_Make", bound=Callable[..., Any])


@dataclass(frozen=True)
class Description:
    """What a data set declares about itself. The defaults mean that nothing is known in advance.

    Args:
        title: Name for pages and plots. Empty: the name of its kind and folder.
        shape: Shape of one item. None: its options decide.
        classes: Number of classes. None: the labels decide, if there are any.
        class_names: Names of the classes, in the order of the labels.
        features: Features in which exams and scores measure distances: "digits", "mnist", "fid" or "moments". None:
            "fid" for images, "moments" for other states.
        samples: How many samples `ebmlife fid` draws by default.
        reference: The split that samples are compared with by default. None: what the run was trained on.
        whole: Whether it has a split "all" besides those for training and tests.
    """

    title: str = ""
    shape: tuple[int, ...] | None = None
    classes: int | None = None
    class_names: tuple[str, ...] = ()
    features: str | None = None
    samples: int = 5000
    reference: str | None = None
    whole: bool = False

    def features_for(self, shape: tuple[int, ...]) -> str:
        """The features for states of this shape."""
        return self.features or ("fid" if len(shape) == 3 else "moments")


def described(description: Description) -> Callable[[_Make], _Make]:
    """Declares what is known about the data set that a function reads."""

    def declare(make: _Make) -> _Make:
        make.description = description  # type: ignore[attr-defined]  # a function's own attribute
        return make

    return declare


def description_of(make: Callable[..., Any]) -> Description:
    """Returns what was declared about the data set that a function reads."""
    found: Description = getattr(make, "description", Description())
    return found
