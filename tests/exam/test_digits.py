from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch

from ebmlife.data import digits
from ebmlife.exam.digits import digits_classifier, held_out_rows, training_rows


def test_the_classifier_knows_digits_that_it_never_saw() -> None:
    data, rows = digits(), held_out_rows()
    assert data.labels is not None
    accuracy = (digits_classifier()(data.take(rows)).argmax(1) == data.labels[rows]).double().mean()
    assert accuracy > 0.97


def test_no_digit_is_in_both_parts() -> None:
    assert len({*training_rows().tolist()} & {*held_out_rows().tolist()}) == 0


def test_it_is_frozen_and_the_same_each_time() -> None:
    assert digits_classifier() is digits_classifier()
    assert not any(p.requires_grad for p in digits_classifier().parameters())
    assert digits_classifier().features(torch.zeros(2, 1, 8, 8)).shape == (2, 64)


@pytest.mark.parametrize("evaluating", [torch.no_grad, torch.inference_mode])
def test_whoever_asks_first_while_evaluating_has_it_trained(
    evaluating: Callable[[], AbstractContextManager[None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with evaluating():
        features = digits_classifier.__wrapped__().features(torch.zeros(2, 1, 8, 8))
    assert features.shape == (2, 64)
    assert (tmp_path / "ebmlife" / "digits-classifier-1.safetensors").is_file()
