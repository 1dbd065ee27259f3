import os
import pty
import sys
from contextlib import suppress
from html import unescape
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from ebmlife.runs import progress
from ebmlife.runs.progress import ProgressDisplay


class Clock:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def advance(display: ProgressDisplay, clock: Clock, *, seconds: int, text: str = "") -> None:
    """Does one unit of 100 a second."""
    for done in range(1, seconds + 1):
        clock.now += 1
        display.advance(done, 100, text)


def test_a_log_file_gets_a_line_every_ten_seconds(tmp_path: Path, clock: Clock) -> None:
    file = tmp_path / "log"
    with file.open("w") as stream, ProgressDisplay("steps", console=Console(file=stream, width=20)) as display:
        advance(display, clock, seconds=25, text="[loss] 0.5")
    assert file.read_text().splitlines() == [
        "steps: 10/100, 10%, 0:00:10 elapsed, 0:01:30 left, [loss] 0.5",
        "steps: 20/100, 20%, 0:00:20 elapsed, 0:01:20 left, [loss] 0.5",
    ]


def test_a_resumed_work_is_timed_from_where_it_resumed(clock: Clock) -> None:
    console = Console(file=StringIO())
    with ProgressDisplay("updates", console=console) as display:
        for done in range(5000, 5016):
            display.advance(done, 7200)
            clock.now += 1
    assert written(console) == "updates: 5010/7200, 70%, 0:00:10 elapsed, 0:36:30 left\n"


def test_the_time_left_follows_the_last_minute(clock: Clock) -> None:
    console = Console(file=StringIO())
    with ProgressDisplay("updates", console=console) as display:
        display.advance(0, 1000)
        clock.now += 3600  # a slow beginning
        for done in range(500, 575):
            clock.now += 1
            display.advance(done, 1000)
    assert "570/1000, 57%, 1:01:11 elapsed, 0:07:10 left" in written(console)


def test_shares_of_one_are_shown_in_percent_only(clock: Clock) -> None:
    console = Console(file=StringIO())
    with ProgressDisplay("bpda-k50", console=console) as display:
        clock.now += 20
        display.advance(0.25, 1.0, "8 of 10 stand")
    assert written(console) == "bpda-k50: 25%, 0:00:20 elapsed, 8 of 10 stand\n"


def test_a_terminal_gets_a_bar_with_the_time_left(clock: Clock) -> None:
    """A real one: the end of a pseudo-terminal."""
    reading, writing = pty.openpty()
    with os.fdopen(writing, "w") as stream:
        console = Console(file=stream, width=100, force_terminal=None)
        assert console.is_terminal
        with ProgressDisplay("update", console=console) as display:
            advance(display, clock, seconds=25, text="loss +0.5")
    seen = b""
    with suppress(OSError):  # the end of what was written
        while part := os.read(reading, 2**16):
            seen += part
    os.close(reading)
    assert "25/100  25%  0:01:15 left  loss +0.5" in seen.decode()
    assert b"elapsed" not in seen


@pytest.mark.parametrize("options", [{"quiet": True}, {"console": Console(file=StringIO(), quiet=True)}])
def test_other_ranks_are_silent(options: dict[str, Any], clock: Clock, capfd: pytest.CaptureFixture[str]) -> None:
    with ProgressDisplay("update", **options) as display:
        advance(display, clock, seconds=50)
    assert capfd.readouterr() == ("", "")


def test_a_notebook_gets_one_line_that_is_updated(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """IPython's own display, as far as it is used: `display` gives a handle whose content can be replaced."""
    shown: list[str] = []
    handle = SimpleNamespace(update=lambda content: shown.__setitem__(-1, content))

    def display(content: str, *, display_id: bool) -> SimpleNamespace:
        assert display_id
        shown.append(content)
        return handle

    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(HTML=str, display=display))  # type: ignore[arg-type]
    with ProgressDisplay("<steps>", console=Console(force_jupyter=True)) as bar:
        advance(bar, clock, seconds=1)
        assert unescape(shown[0]) == "<pre><steps>: 1/100, 1%, 0:00:01 elapsed</pre>"
        clock.now += 0.1
        bar.advance(2, 100)
        assert "1/100" in shown[0]  # too soon
        advance(bar, clock, seconds=30)
        bar.advance(100, 100)
    assert len(shown) == 1
    assert "100/100, 100%, 0:00:31 elapsed" in shown[0]


def test_batches_are_counted_by_their_length(clock: Clock) -> None:
    console = Console(file=StringIO())
    with ProgressDisplay("samples", console=console) as display:
        for _ in display.track([torch.zeros(4, 1), torch.zeros(2, 1)], 6):
            clock.now += 20
    assert [line.partition(",")[0] for line in written(console).splitlines()] == ["samples: 4/6", "samples: 6/6"]


def written(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()
