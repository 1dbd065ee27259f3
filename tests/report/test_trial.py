import time
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ebmlife.defense import DefendedClassifier
from ebmlife.report import trial
from ebmlife.report.trial import Defense, Trial
from ebmlife.report.uploads import TrialSettings

WISH = TrialSettings(radius=8, steps=3, langevin=20, attacker="bpda")


class Brightness(nn.Module):
    """Class 1 where the mean pixel is above 0."""

    def forward(self, x: Tensor) -> Tensor:
        mean = x.flatten(1).mean(1)
        return 100 * torch.stack([-mean, mean], 1)


def bowl(x: Tensor) -> Tensor:
    """Every pixel is drawn to 0.5."""
    return 50 * (x - 0.5).square().flatten(1).sum(1)


def defense(**changes: Any) -> Defense:
    fields = {
        "energy": bowl,
        "step_size": 0.1,
        "clip": None,
        "shape": (1, 4, 4),
        "device": torch.device("cpu"),
        "classifier": Brightness(),
        "classes": ("dark", "bright"),
    }
    return Defense(**(fields | changes))


def finished(it: Trial) -> dict[str, Any]:
    it.thread.join(60)
    assert it.over
    return it.state()


def test_a_trial_ends_with_all_three_images_and_what_was_seen_in_them() -> None:
    state = finished(Trial(defense(), torch.full((1, 4, 4), 0.02), WISH))
    assert not state["failed"]
    assert state["done"] == 1
    # 8/255 of the range is 0.063 of [-1, 1]: enough to turn 0.02, which the bowl brings back to 0.5.
    assert [it["name"] for it in state["natural"]["predictions"]] == ["bright", "bright"]
    assert [(it["name"], it["right"]) for it in state["attacked"]["predictions"]] == [("dark", False)]
    assert [(it["name"], it["right"]) for it in state["purified"]["predictions"]] == [("bright", True)]
    assert state["message"] == (
        "Finished. After the attack the classifier alone is fooled: it sees dark, not bright; the defense sees bright."
    )
    assert [frame["step"] for frame in state["frames"]][-1] == WISH.langevin
    assert state["purified"]["image"] == state["frames"][-1]["image"]


def test_without_a_radius_the_image_is_only_purified() -> None:
    state = finished(Trial(defense(), torch.full((1, 4, 4), -0.9), TrialSettings(0, 3, 20, "bpda")))
    assert state["attacked"]["image"] == state["natural"]["image"]
    assert state["natural"]["predictions"][0]["name"] == "dark"
    assert "still sees" in state["message"] or "is fooled" in state["message"]


def test_a_trial_can_be_canceled_in_the_middle_of_a_walk() -> None:
    def slow(x: Tensor) -> Tensor:
        time.sleep(0.002)
        return bowl(x)

    it = Trial(defense(energy=slow), torch.zeros(1, 4, 4), TrialSettings(8, 100, 5000, "bpda"))
    assert not it.over
    it.cancel()
    state = finished(it)
    assert state["message"] == "Canceled."
    assert state["purified"] is None


def test_a_trial_that_nobody_watches_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "ABANDONED", -1.0)
    assert finished(Trial(defense(), torch.zeros(1, 4, 4), WISH))["message"] == "Canceled."


def _explodes(x: Tensor) -> Tensor:
    return x.flatten(1).sum(1) * float("nan")


@pytest.mark.parametrize("error", [ValueError("broken\nnet"), MemoryError("broken net")])
def test_a_trial_that_fails_says_so_in_a_line_and_is_over(error: Exception) -> None:
    def broken(x: Tensor) -> Tensor:
        raise error

    state = finished(Trial(defense(energy=broken), torch.zeros(1, 4, 4), WISH))
    assert state["failed"]
    assert state["message"] == "The trial failed: broken net"


def test_a_diverging_energy_is_said() -> None:
    state = finished(Trial(defense(energy=_explodes), torch.zeros(1, 4, 4), WISH))
    assert state["failed"]
    assert "finite" in state["message"]


def test_the_final_word_is_the_defended_classifiers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    forward = DefendedClassifier.forward

    def counted(self: DefendedClassifier, x: Tensor, **options: Any) -> Tensor:
        asked.append(options.get("replicas", 0))
        return forward(self, x, **options)

    monkeypatch.setattr(DefendedClassifier, "forward", counted)
    finished(Trial(defense(), torch.full((1, 4, 4), 0.02), WISH))
    assert asked[0] == asked[-1] == trial.VERIFY


def test_classes_without_names_are_numbers() -> None:
    assert defense(classes=()).name(1) == "1"
