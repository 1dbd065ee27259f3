"""The progress display of all commands: a bar on a terminal, one line that updates in a notebook, lines in a log."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from html import escape
from importlib import import_module
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from torch import Tensor

from ebmlife.runs.logging import Speed
from ebmlife.training.base import Report

_LOG_INTERVAL = 10.0  # seconds between two lines in a log file
_NOTEBOOK_INTERVAL = 0.5  # seconds between two updates of a notebook's line
_WINDOW = 60.0  # seconds over which the rate of work is measured


class ProgressDisplay:
    """Shows the progress of some work, and the time that is left.

    On a terminal it is a bar. In a notebook it is one line that updates in place. Elsewhere, as in a log file, it is a
    plain line at most every 10 seconds. Use it as a context manager:

        with ProgressDisplay("Langevin steps") as display:
            for step in range(steps):
                ...
                display.advance(step + 1, steps)
    """

    def __init__(self, title: str, *, console: Console | None = None, quiet: bool = False) -> None:
        """Prepares a display that writes to `console`.

        Args:
            title: What is counted, such as "Langevin steps".
            console: Where to write; the default is standard error.
            quiet: Whether to write nothing, as all ranks but the first must.
        """
        self._title, self._console, self._quiet = title, console or Console(stderr=True), quiet
        self._rate = _Rate()
        self._view: _Bar | _Lines | None = None

    def advance(self, done: float, total: float, text: str = "") -> None:
        """Shows that `done` of `total` is finished.

        Args:
            done: The work that is finished, in the same unit as `total`.
            total: All of the work.
            text: What else to show, such as the current loss.
        """
        if self._view is None:
            return
        rate = self._rate(time.monotonic(), done)
        left = f"{_clock((total - done) / rate)} left" if rate else ""
        count = f"{done}/{total}" if isinstance(done, int) and isinstance(total, int) else ""
        self._view.show(done / total if total else 1.0, count, left, text)

    def track(self, batches: Iterable[Tensor], total: int) -> Iterator[Tensor]:
        """Yields the batches and advances by the length of each."""
        done = 0
        for batch in batches:
            yield batch
            done += len(batch)
            self.advance(done, total)

    def __enter__(self) -> Self:
        if not (self._quiet or self._console.quiet):
            self._view = _view(self._title, self._console)
        return self

    def __exit__(self, *_: object) -> None:
        if self._view is not None:
            self._view.close()
            self._view = None


def _view(title: str, console: Console) -> "_Bar | _Lines":
    if console.is_jupyter:
        return _Lines(title, _notebook_line(), interval=_NOTEBOOK_INTERVAL, replaced=True)
    if console.is_terminal:
        return _Bar(title, console)
    write = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    return _Lines(title, write, interval=_LOG_INTERVAL, replaced=False)


class _Bar:
    def __init__(self, title: str, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=12), TextColumn("{task.fields[text]}"))
        self._progress = Progress(*columns, console=console)
        self._task = self._progress.add_task(title, total=1.0, text="")
        self._progress.start()

    def show(self, share: float, count: str, left: str, text: str) -> None:
        line = "  ".join(filter(None, (count, f"{share:.0%}", left, text)))
        self._progress.update(self._task, completed=share, text=line)

    def close(self) -> None:
        self._progress.stop()


class _Lines:
    """Writes at most one line every `interval` seconds. If lines replace each other, the last one is always written."""

    def __init__(self, title: str, write: Callable[[str], None], *, interval: float, replaced: bool) -> None:
        self._title, self._write, self._interval, self._replaced = title, write, interval, replaced
        self._begin = time.monotonic()
        self._written = self._begin - interval if replaced else self._begin
        self._pending = ""

    def show(self, share: float, count: str, left: str, text: str) -> None:
        now = time.monotonic()
        elapsed = f"{_clock(now - self._begin)} elapsed"
        self._pending = f"{self._title}: " + ", ".join(filter(None, (count, f"{share:.0%}", elapsed, left, text)))
        if now - self._written >= self._interval:
            self._write(self._pending)
            self._written, self._pending = now, ""

    def close(self) -> None:
        if self._replaced and self._pending:
            self._write(self._pending)


def _notebook_line() -> Callable[[str], None]:
    """Returns a function that replaces one line of the cell's output. rich's own display would need ipywidgets."""
    ipython = import_module("IPython.display")
    handle: Any = None

    def write(line: str) -> None:
        nonlocal handle
        content = ipython.HTML(f"<pre>{escape(line)}</pre>")
        if handle is None:
            handle = ipython.display(content, display_id=True)
        else:
            handle.update(content)

    return write


class _Rate:
    """Work per second over the last minute, or since the last call if that is longer."""

    def __init__(self) -> None:
        self._calls: deque[tuple[float, float]] = deque()  # about a second apart

    def __call__(self, now: float, done: float) -> float | None:
        while len(self._calls) > 1 and now - self._calls[1][0] > _WINDOW:
            self._calls.popleft()
        then, before = self._calls[0] if self._calls else (now, done)
        if not self._calls or now - self._calls[-1][0] >= 1:
            self._calls.append((now, done))
        return (done - before) / (now - then) if now > then and done > before else None


def _clock(seconds: float) -> str:
    """Hours, minutes and seconds as 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


class TrainingProgress:
    """Shows the updates of a training, its headline metric, its speed, and how long it waits for data.

    The share of time that is spent waiting for data is shown where it is more than 5 %.
    """

    def __init__(self, display: ProgressDisplay, *, updates: int) -> None:
        self._display, self._updates, self._speed, self._waiting = display, updates, Speed(), 0.0

    def __call__(self, metrics: Report) -> None:
        speed = self._speed()
        headline = f"{metrics.headline.replace('_', ' ')} {getattr(metrics, metrics.headline):+.3f}"
        self._waiting += 0.1 * (min(1.0, metrics.data_seconds * speed) - self._waiting)  # over the last tens of updates
        waiting = f", {self._waiting:.0%} waiting for data" if self._waiting > 0.05 else ""
        self._display.advance(metrics.update, self._updates, f"{headline}, {speed:.1f}/s{waiting}")
