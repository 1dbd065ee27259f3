"""A trained network that is part of an energy and does not learn: what longrun models are built on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from ebmlife.errors import BadInput
from ebmlife.recipes.schema import Part
from ebmlife.storage import contents
from ebmlife.storage.contents import mismatch, not_finite


@dataclass(frozen=True)
class FixedPrior:
    net: nn.Module
    chosen: Part  # what makes such a network
    temperature: float

    def __post_init__(self) -> None:
        self.net.eval().requires_grad_(False)

    def state_dict(self) -> dict[str, Any]:
        """All that a run must keep of its prior: the run that it came from may go."""
        return {
            "net": self.chosen.model_dump(mode="json"),
            "temperature": self.temperature,
            "weights": self.net.state_dict(),
        }


def restored(state: dict[str, Any] | None, make: Callable[[Part], nn.Module]) -> FixedPrior | None:
    """What a checkpoint kept of a prior, its network made anew by `make`."""
    if state is None:
        return None
    wanted = {"net": {}, "temperature": 1.0, "weights": {}}
    said = mismatch(state, wanted) or not_finite(state)
    if said is None and state["temperature"] > 0:
        chosen = contents.restored("the prior in the checkpoint", lambda: Part.model_validate(state["net"]))
        net = make(chosen)
        said = mismatch(state["weights"], net.state_dict())
        if said is None:
            net.load_state_dict(state["weights"])
            return FixedPrior(net, chosen, state["temperature"])
    raise BadInput(f"the prior in the checkpoint cannot be used: {said or 'its temperature must be above 0'}")
