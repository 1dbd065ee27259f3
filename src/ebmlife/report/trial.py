"""A trial attacks and purifies one image while the page shows it. It writes nothing to disk."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ebmlife import attacks
from ebmlife.attacks import Threat
from ebmlife.defense import DefendedClassifier, Purifier
from ebmlife.errors import BadInput
from ebmlife.plots import pictures
from ebmlife.report.images import embedded
from ebmlife.report.uploads import TrialSettings
from ebmlife.sampling.energy import Energy, gradient
from ebmlife.sampling.long_run import log_spaced
from ebmlife.sampling.rng import derive_seed

REPLICAS, VERIFY = 8, 32  # chains that a gradient averages, and chains that a prediction averages
ABANDONED = 20.0  # seconds without a request, after which a trial ends


@dataclass(frozen=True)
class Defense:
    """The target of a trial: a classifier, and the energy that purifies its images."""

    energy: Energy
    step_size: float
    clip: float | None
    shape: tuple[int, ...]
    device: torch.device
    classifier: nn.Module
    classes: Sequence[str] = ()  # names of the classes; without them, numbers are shown

    def name(self, index: int) -> str:
        return self.classes[index] if index < len(self.classes) else str(index)


class _Canceled(Exception):
    pass


class _Cancelable(nn.Module):
    """An energy whose chains can be canceled at any step."""

    def __init__(self, energy: Energy, check: Callable[[], None]) -> None:
        super().__init__()
        self.energy, self.check = energy, check

    def forward(self, x: Tensor) -> Tensor:
        return self.energy(x)

    def gradient(self, x: Tensor) -> Tensor:
        self.check()
        return gradient(self.energy, x)


class Trial:
    """A trial of one image, in a thread of its own; `state` is what the page shows."""

    def __init__(self, defense: Defense, x: Tensor, settings: TrialSettings) -> None:
        self._defense, self._x, self._settings = defense, x[None].to(defense.device), settings
        energy = _Cancelable(defense.energy, self._check)
        purifier = Purifier(energy, steps=settings.langevin, step_size=defense.step_size, clip=defense.clip)
        self._robust = DefendedClassifier(defense.classifier, purifier, replicas=REPLICAS, gradient=settings.attacker)
        self._state: dict[str, Any] = {"done": 0.0, "message": "", "over": False, "failed": False, "frames": []}
        self._state |= {"natural": None, "attacked": None, "purified": None}
        self._stop, self._last_request = threading.Event(), time.monotonic()
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    @property
    def over(self) -> bool:
        return bool(self._state["over"])

    def state(self) -> dict[str, Any]:
        self._last_request = time.monotonic()
        return self._state

    def cancel(self) -> None:
        self._stop.set()

    def _check(self) -> None:
        if self._stop.is_set() or time.monotonic() - self._last_request > ABANDONED:
            raise _Canceled

    def _show(self, **changes: Any) -> None:
        self._state = self._state | changes  # a new dict, so that readers never see a partial change

    def _work(self) -> None:
        try:
            self._show(message=self._run(), done=1.0, over=True)
        except _Canceled:
            self._show(message="Canceled.", over=True)
        except Exception as error:  # any error must end the trial: the next one waits for it
            self._show(message=f"The trial failed: {' '.join(str(error).split())}", failed=True, over=True)

    def _run(self) -> str:
        self._show(message="Classifying the natural image")
        logits = self._defended(self._x, "natural")
        y = logits.argmax(1)
        label = int(y)
        bare = self._robust.classify(self._x)
        natural = [
            self._prediction("the classifier alone", bare, label),
            self._prediction("the defense", logits, label),
        ]
        self._show(natural=_stage(self._x, natural), done=0.05)
        adversary = self._attack(y)
        bare_attacked = self._robust.classify(adversary)
        self._show(
            attacked=_stage(adversary, [self._prediction("the classifier alone", bare_attacked, label)]), done=0.75
        )
        cleaned = self._purify(adversary)
        self._show(message="Classifying by the defense", done=0.9)
        final = self._defended(adversary, "attacked")
        self._show(purified=_stage(cleaned, [self._prediction("the defense", final, label)]))
        return self._summary(label, int(bare_attacked.argmax()), int(final.argmax()))

    def _attack(self, y: Tensor) -> Tensor:
        if not self._settings.radius:
            return self._x

        def show(progress: attacks.Progress) -> None:
            self._check()
            step = int((progress.tally.attacked[0] >= 0).sum())
            adversary = progress.tally.adversaries.to(self._x.device)
            predictions = [self._prediction("the classifier alone", self._robust.classify(adversary), int(y))]
            self._show(
                message=f"Attacking: step {max(step - 1, 0)} of {self._settings.steps}",
                attacked=_stage(adversary, predictions),
                done=0.05 + 0.7 * progress.done,
            )

        threat = Threat("linf", self._settings.radius / 255)
        record = attacks.evaluate(
            self._robust,
            self._x,
            y,
            threat=threat,
            steps=self._settings.steps,
            verify=VERIFY,
            evaluations=1,
            watch=show,
        )
        return record.tally.adversaries.to(self._x.device)

    def _purify(self, x: Tensor) -> Tensor:
        """Walks one chain of the defense, and shows it at log-spaced steps."""
        purifier, frames = self._robust.purifier, []
        noise = purifier.noise(next(purifier.parts([derive_seed(0, "picture")], replicas=1)), x.device)
        marks = log_spaced(self._settings.langevin, per_decade=3)
        for done, step in pairwise([0, *marks]):
            x = purifier.walk(x, noise, steps=step - done)
            frames.append({"step": step, "image": _picture(x)})
            self._show(
                frames=list(frames),
                purified=_stage(x, []),
                message=f"Purifying: step {step} of {self._settings.langevin}",
                done=0.75 + 0.15 * step / self._settings.langevin,
            )
        return x

    def _defended(self, x: Tensor, what: str) -> Tensor:
        with torch.no_grad():
            logits: Tensor = self._robust(x, replicas=VERIFY, seeds=[derive_seed(0, what)])
        return logits

    def _prediction(self, who: str, logits: Tensor, label: int) -> dict[str, Any]:
        shares = logits.softmax(1)[0]
        if not bool(shares.isfinite().all()):
            raise BadInput(f"{who} returns probabilities that are not finite")
        best = int(shares.argmax())
        return {"who": who, "name": self._defense.name(best), "share": float(shares[best]), "right": best == label}

    def _summary(self, label: int, bare: int, defended: int) -> str:
        name = self._defense.name
        fooled = f"still sees {name(label)}" if bare == label else f"is fooled: it sees {name(bare)}, not {name(label)}"
        holds = f"sees {name(label)}" if defended == label else f"is broken: it sees {name(defended)}"
        return f"Finished. After the attack the classifier alone {fooled}; the defense {holds}."


def _stage(x: Tensor, predictions: list[dict[str, Any]]) -> dict[str, Any]:
    return {"image": _picture(x), "predictions": predictions}


def _picture(x: Tensor) -> str:
    return embedded(pictures.image(x[0]))
