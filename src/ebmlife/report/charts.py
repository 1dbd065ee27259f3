"""Charts as plain data, which the page's script draws, with a table of the same numbers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Column = Sequence[float | None]


@dataclass(frozen=True)
class Line:
    name: str
    values: Column
    low: Column | None = None  # a band around the line
    high: Column | None = None


@dataclass(frozen=True)
class Chart:
    title: str
    x: Sequence[float]
    lines: Sequence[Line]
    x_name: str
    y_name: str
    caption: str = ""
    log_x: bool = False  # log(1 + x), which includes step 0
    log_y: bool = False
    bars: bool = False
    regions: Mapping[str, float] = field(default_factory=dict)  # start of each named part of the x axis
    scale: tuple[float, float] | None = None  # range of y; by default that of the values
    data: tuple[float, float] | None = None  # range of the data
    marks: Mapping[str, float] = field(default_factory=dict)  # vertical lines by label

    @property
    def spec(self) -> dict[str, Any]:
        """The chart for the script. Values that are not finite become null, as JSON has no others."""
        return {
            "x": list(self.x),
            "lines": [
                {"name": line.name, **{key: _finite(getattr(line, key)) for key in ("values", "low", "high")}}
                for line in self.lines
            ],
            "xName": self.x_name,
            "yName": self.y_name,
            "logX": self.log_x,
            "logY": self.log_y,
            "bars": self.bars,
            "regions": dict(self.regions),
            "scale": _both(self.scale),
            "data": _both(self.data),
            "marks": dict(self.marks),
        }

    def rows(self, most: int = 12) -> list[list[str]]:
        """Returns a table of the chart: its header, then at most `most` points."""
        last = len(self.x) - 1
        kept = range(last + 1) if last < most else sorted({round(i * last / (most - 1)) for i in range(most)})
        body = [[number(self.x[i]), *(number(line.values[i]) for line in self.lines)] for i in kept]
        return [[self.x_name, *(line.name for line in self.lines)], *body]

    @property
    def broken(self) -> int:
        """The number of values that are not finite."""
        return sum(value is not None and not math.isfinite(value) for line in self.lines for value in line.values)


def overlaid(charts: Mapping[str, Chart]) -> Chart:
    """Returns one chart with the first line of each chart. Lines and marks are named by the keys."""
    first, *others = charts.values()
    alike = all(chart.y_name == first.y_name for chart in others)
    x = sorted({at for chart in charts.values() for at in chart.x})
    lines = []
    for name, chart in charts.items():
        known = dict(zip(chart.x, chart.lines[0].values, strict=True))
        lines.append(Line(name, [known.get(at) for at in x]))
    return replace(
        first,
        x=x,
        lines=lines,
        y_name=first.y_name if alike else "different measures: compare shapes, not heights",
        data=first.data if alike else None,
        marks={f"{name}: {label}": at for name, chart in charts.items() for label, at in chart.marks.items()},
    )


def number(value: float | None) -> str:
    """Formats a number with four significant digits and thousands separators, and None as nothing."""
    if value is None:
        return ""
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e12 else f"{value:,.4g}"


def _both(range_: tuple[float, float] | None) -> tuple[float, float] | None:
    return range_ if range_ is not None and all(map(math.isfinite, range_)) else None


def _finite(values: Column | None) -> list[float | None] | None:
    if values is None:
        return None
    return [value if value is not None and math.isfinite(value) else None for value in values]
