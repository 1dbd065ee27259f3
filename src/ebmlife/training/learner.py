"""A network with its optimizer, learning rate, gradient clipping and moving average."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, clip_grads_with_norm_, get_total_norm
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from ebmlife.errors import BadInput, Diverged
from ebmlife.sampling.schedule import LinearDecay, Schedule, scheduled
from ebmlife.storage.contents import mismatch

Average = Callable[[Sequence[Tensor]], None]  # averages in place over the processes that share the work


def no_reduce(tensors: Sequence[Tensor]) -> None:
    """The average over one process."""


class Learner:
    """A network and everything that changes its weights.

    Args:
        net: The network.
        optimizer: Its optimizer. Default: Adam. The learning rate is set at every update.
        learning_rate: A number or a schedule over updates.
        clip: Largest norm of the gradient. None: no clipping.
        clip_by: Whether the whole gradient is clipped, or the gradient of each weight tensor separately.
        ema: Decay of the moving average of the weights, a number or a schedule.
        average: Averages tensors over the processes that share the work.
    """

    def __init__(
        self,
        net: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        learning_rate: Schedule | LinearDecay = 1e-4,
        clip: float | None = None,
        clip_by: Literal["global", "weight"] = "global",
        ema: Schedule = 0.999,
        average: Average = no_reduce,
    ) -> None:
        self.net, self.average = net, average
        self.optimizer = torch.optim.Adam(net.parameters(), fused=True) if optimizer is None else optimizer
        self.clip, self.clip_by = clip, clip_by
        self.learning_rate = learning_rate if isinstance(learning_rate, LinearDecay) else scheduled(learning_rate)
        self.decay = scheduled(ema)
        # AveragedModel copies batch statistics and does not average them.
        self._average = AveragedModel(net)

    @property
    def ema(self) -> nn.Module:
        """The network with averaged weights, which samples are drawn from."""
        return self._average.module

    def descend(self, loss: Tensor, *, update: int) -> None:
        """One optimizer step on the loss, then ema <- decay * ema + (1 - decay) * weights."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(update)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        gradients = [p.grad for p in self.net.parameters() if p.grad is not None]
        self.average(gradients)
        norm = get_total_norm(gradients)
        if not torch.isfinite(norm):
            raise Diverged(f"the gradient of {type(self.net).__name__}'s weights is {norm.item()} at update {update}")
        self._clip(norm)
        self._step(update)
        self._average.multi_avg_fn = get_ema_multi_avg_fn(self.decay(update))  # type: ignore[no-untyped-call]
        self._average.update_parameters(self.net)

    def _clip(self, norm: Tensor) -> None:
        """g <- g * min(1, clip / |g|), where g is the whole gradient or that of one weight tensor."""
        if self.clip is not None and self.clip_by == "global":
            clip_grads_with_norm_(self.net.parameters(), self.clip, norm)
        elif self.clip is not None:
            for weight in self.net.parameters():
                clip_grad_norm_(weight, self.clip)

    def _step(self, update: int) -> None:
        try:
            self.optimizer.step()
            torch.autograd.graph.increment_version(self.net.parameters())  # fused optimizers do not
        except RuntimeError as error:
            if "overflow" not in str(error):
                raise
            raise Diverged(f"the optimizer's step is not finite at update {update}: {error}") from error

    def state_dict(self) -> dict[str, Any]:
        return {
            "net": self.net.state_dict(),
            "ema": self.ema.state_dict(),
            "averaged": self._average.n_averaged,
            "optimizer": self.optimizer.state_dict()["state"],  # its settings are the recipe's
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores weights, average and moments.

        Raises:
            BadInput: The moments do not fit the optimizer and these weights. Moments of None begin at zero.
        """
        if state["optimizer"] is not None:
            moments = {int(index): value for index, value in state["optimizer"].items()}
            self._check_moments(moments, state)
            self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moments})
            self._lay_out_moments()
        self.net.load_state_dict(state["net"])
        self.ema.load_state_dict(state["ema"])
        self._average.n_averaged.copy_(state["averaged"])

    def _lay_out_moments(self) -> None:
        """Gives each moment the memory layout of its weight: fused optimizers pair them by their place in memory."""
        for weight, moments in self.optimizer.state.items():
            for name, value in moments.items():
                if isinstance(value, Tensor) and value.shape == weight.shape and value.stride() != weight.stride():
                    moments[name] = torch.empty_like(weight).copy_(value)

    def _check_moments(self, found: dict[int, Any], state: dict[str, Any]) -> None:
        names = [name for name, _ in self.net.named_parameters()]
        expected = self._moments() if int(state["averaged"]) else {}
        for index in expected.keys() - found.keys():
            # A weight that no gradient has reached has no moments, and its average is the weight itself.
            if not torch.equal(state["net"][names[index]], state["ema"][names[index]]):
                raise BadInput(f"the optimizer's moments of {names[index]} are missing")
        for index, moments in found.items():
            problem = mismatch(moments, expected[index]) if index in expected else "this weight has none"
            if problem is not None:
                raise BadInput(f"the optimizer's moments of weight {index}: {problem}")

    def _moments(self) -> dict[int, Any]:
        """The moments that the optimizer keeps of each weight, found by a step on tensors without data."""
        weights = [torch.empty_like(p, device="meta") for group in self.optimizer.param_groups for p in group["params"]]
        for weight in weights:
            weight.grad = torch.empty_like(weight)
        options = {name: value for name, value in self.optimizer.defaults.items() if name != "fused"}  # needs data
        trial = type(self.optimizer)(weights, **options)
        trial.step()
        moments: dict[int, Any] = trial.state_dict()["state"]
        return moments
