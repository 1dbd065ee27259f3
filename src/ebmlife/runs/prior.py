"""A trained network that is a fixed part of an energy, as in longrun models."""

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
    """The prior term net(x) / temperature of an energy."""

    net: nn.Module
    chosen: Part  # the recipe of the network
    temperature: float

    def __post_init__(self) -> None:
        self.net.eval().requires_grad_(False)

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that is needed to restore the prior without its run."""
        return {
            "net": self.chosen.model_dump(mode="json"),
            "temperature": self.temperature,
            "weights": self.net.state_dict(),
        }


def restored(state: dict[str, Any] | None, make: Callable[[Part], nn.Module]) -> FixedPrior | None:
    """Returns the prior in a checkpoint, with a network built by `make`; None if it has no prior."""
    if state is None:
        return None
    like = {"net": {}, "temperature": 1.0, "weights": {}}
    wrong = mismatch(state, like) or not_finite(state)
    if wrong is None and state["temperature"] > 0:
        chosen = contents.restored("the prior in the checkpoint", lambda: Part.model_validate(state["net"]))
        net = make(chosen)
        wrong = mismatch(state["weights"], net.state_dict())
        if wrong is None:
            net.load_state_dict(state["weights"])
            return FixedPrior(net, chosen, state["temperature"])
    raise BadInput(f"the prior in the checkpoint cannot be used: {wrong or 'its temperature must be above 0'}")
