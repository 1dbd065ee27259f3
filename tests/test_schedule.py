import pytest

from ebmlife.sampling.schedule import GAMMA_ANNEAL, LinearDecay, Phase, Piecewise, constant, parse


def test_gamma_anneal_is_the_papers() -> None:
    expected = {0: 1e-4, 49_999: 1e-4, 50_000: 1e-5, 75_000: 1e-6, 100_000: 1e-7, 125_000: 1e-8, 250_000: 1e-8}
    assert {update: GAMMA_ANNEAL(update) for update in expected} == expected


def test_text_and_constants() -> None:
    assert parse("1e-4") == constant(1e-4)
    assert parse("1e-4, 1e-5 @ 50000") == Piecewise((Phase(0, 1e-4), Phase(50_000, 1e-5)))


@pytest.mark.parametrize("starts", [[], [1], [0, 5, 5], [0, 9, 3]])
def test_phases_begin_at_0_and_go_up(starts: list[int]) -> None:
    with pytest.raises(ValueError, match="update 0"):
        Piecewise(tuple(Phase(start, 1.0) for start in starts))


def test_linear_decay_reaches_zero_linearly() -> None:
    falling = LinearDecay(Piecewise((Phase(0, 1.0), Phase(50, 0.5))), until=100)
    assert [falling(update) for update in (0, 25, 50, 75, 100, 200)] == [1.0, 0.75, 0.25, 0.125, 0.0, 0.0]
