"""The base of all trainers: the loop over updates, and the metrics of an update."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from ebmlife.training.chains import Chains


@dataclass(frozen=True)
class Report:
    """The metrics of one update: numbers by name, None if one does not apply."""

    headline: ClassVar[str]  # the field that progress displays show

    update: int  # number of updates done, including this one
    data_seconds: float = field(default=0.0, compare=False, kw_only=True)  # time that the update waited for its data


R = TypeVar("R", bound=Report)


class Loop(ABC, Generic[R]):
    """A trainer, which makes updates one by one. Its complete state can be saved."""

    chains: Chains | None = None  # None: no states are kept between updates
    update = 0  # number of updates done
    stateful: ClassVar[tuple[str, ...]] = ()  # attributes whose states are saved, in this order

    @abstractmethod
    def step(self) -> R:
        """Makes one update and returns its metrics."""

    def fit(self, updates: int, *, after: Sequence[Callable[[R], None]] = ()) -> None:
        """Makes updates until their total number is `updates`.

        Args:
            updates: Total number of updates, including those made before.
            after: Functions that are called with the metrics of every update.
        """
        while self.update < updates:
            report = self.step()
            for call in after:
                call(report)

    def state_dict(self) -> dict[str, Any]:
        """Returns the number of updates and the states of the parts in `stateful`."""
        return {"update": self.update} | {name: getattr(self, name).state_dict() for name in self.stateful}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what `state_dict` returned."""
        self.update = state["update"]
        for name in self.stateful:
            getattr(self, name).load_state_dict(state[name])
