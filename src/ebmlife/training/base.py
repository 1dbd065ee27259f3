"""What trainers share: the loop over updates, and reports that are watched without knowing the method."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from ebmlife.training.chains import Chains


@dataclass(frozen=True)
class Report:
    """What one update was like: numbers by name, None where one does not apply."""

    headline: ClassVar[str]  # the field that says at a glance how training goes

    update: int  # updates done, this one included
    data_seconds: float = field(default=0.0, compare=False, kw_only=True)  # that the update waited for its data


R = TypeVar("R", bound=Report)


class Loop(ABC, Generic[R]):
    chains: Chains | None = None  # where states are kept between updates
    update = 0  # updates done

    @abstractmethod
    def step(self) -> R:
        """One update."""

    def fit(self, updates: int, *, after: Sequence[Callable[[R], None]] = ()) -> None:
        """Steps until `updates` have been made in all, calling each of `after` behind every one."""
        while self.update < updates:
            report = self.step()
            for call in after:
                call(report)

    @abstractmethod
    def state_dict(self) -> dict[str, Any]: ...

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None: ...
