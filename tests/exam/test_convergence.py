import builtins
from typing import Any

import numpy as np
import pytest

from ebmlife.errors import BadInput
from ebmlife.exam.metrics import convergence


def normals(chains: int, draws: int) -> Any:
    return np.random.default_rng(0).normal(size=(chains, draws))


def test_independent_draws_have_converged_and_count_fully() -> None:
    found = convergence(normals(8, 500))
    assert found is not None
    rhat, ess = found
    assert rhat == pytest.approx(1, abs=0.01)
    assert ess == pytest.approx(4000, rel=0.15)


def test_correlated_draws_count_for_less() -> None:
    """An AR(1) chain with coefficient 0.9 has an effective size of (1 - 0.9) / (1 + 0.9) of its draws."""
    noise, x = normals(8, 4000), np.zeros((8, 4000))
    for t in range(1, 4000):
        x[:, t] = 0.9 * x[:, t - 1] + noise[:, t]
    found = convergence(x)
    assert found is not None
    assert found[1] == pytest.approx(32_000 / 19, rel=0.25)


def test_chains_in_different_places_and_chains_that_drift_have_not_converged() -> None:
    apart = convergence(normals(4, 200) + 5 * np.arange(4)[:, None])
    drifting = convergence(normals(4, 200) + np.linspace(0, 10, 200))
    assert apart is not None
    assert drifting is not None
    assert apart[0] > 1.5
    assert drifting[0] > 1.5


def test_too_little_has_no_answer() -> None:
    assert convergence(normals(1, 100)) is None
    assert convergence(normals(4, 3)) is None
    assert convergence(np.ones((4, 100))) is None


def test_without_arviz_the_way_to_get_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    true_import = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "arviz":
            raise ImportError(name)
        return true_import(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(BadInput, match=r"pip install 'ebmlife\[exam\]'"):
        convergence(normals(4, 100))
