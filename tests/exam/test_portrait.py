"""Several lives on one picture."""

import torch

from ebmlife.exam import LifeCycle, life_cycle
from ebmlife.exam.plots import _frames, draw_cycles, landmarks
from ebmlife.sampling.energy import gaussian


def lived(steps: int) -> LifeCycle:
    x = 0.5 * torch.randn(8, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    return life_cycle(gaussian(0.5), x, steps=steps, step_size=0.2, shown=3)


def test_strips_share_columns_and_are_white_at_steps_that_were_not_evaluated() -> None:
    short, long = lived(15), lived(150)
    assert landmarks(short) == [0, 1, 10, 15]
    assert landmarks(long) == [0, 1, 10, 100, 150]
    frames = _frames(short, [0, 1, 10, 15, 100, 150], 2).view(2, 6, 1, 4, 4)
    assert torch.equal(frames[1, 2], short.strip[short.steps.index(10), 1])
    assert frames[:, 4:].eq(1).all()
    one, two = draw_cycles({"a": short}), draw_cycles({"a": short, "b": long})
    assert two.height > one.height
