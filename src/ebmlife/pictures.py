"""States as pictures: grids of images, scatter plots of points, and the paper's diagnostic plot."""

import math
from pathlib import Path

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from ebmlife.files import whole

_TINY, _ENOUGH = 32, 48  # pixels: images less wide than the first are enlarged until they have the second


def to_uint8(x: Tensor) -> Tensor:
    """[-1, 1] -> {0..255}, values outside clipped."""
    return ((x.detach().float().cpu().clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)


def image(x: Tensor) -> Image.Image:
    """One image (C, H, W)."""
    pixels = to_uint8(x).permute(1, 2, 0).numpy()
    return Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)


def grid(x: Tensor, *, columns: int | None = None, gap: int = 2) -> Image.Image:
    """Images (B, C, H, W) in rows, enlarged without smoothing if they are tiny."""
    n, channels, height, width = x.shape
    zoom = math.ceil(_ENOUGH / width) if width < _TINY else 1
    columns = columns or math.ceil(math.sqrt(n))
    rows = math.ceil(n / columns)
    tile_h, tile_w = height * zoom + gap, width * zoom + gap
    canvas = np.full((rows * tile_h + gap, columns * tile_w + gap, channels), 255, np.uint8)
    tiles = to_uint8(x).permute(0, 2, 3, 1).numpy().repeat(zoom, 1).repeat(zoom, 2)
    for i, tile in enumerate(tiles):
        top, left = gap + i // columns * tile_h, gap + i % columns * tile_w
        canvas[top : top + height * zoom, left : left + width * zoom] = tile
    return Image.fromarray(canvas[..., 0] if channels == 1 else canvas)


def draw(x: Tensor) -> Image.Image:
    """States as a picture: a grid of images, or a scatter plot of points in the plane."""
    if x.ndim == 4:
        return grid(x)
    figure = _figure(5, 5)
    axes = figure.add_subplot()
    points = x.detach().cpu().numpy()
    axes.scatter(points[:, 0], points[:, 1], s=2)
    axes.set(xlim=(-1.5, 1.5), ylim=(-1.5, 1.5), aspect="equal")
    return _rendered(figure)


def save(path: Path, picture: Image.Image) -> None:
    with whole(path) as unfinished:
        picture.save(unfinished, format="PNG")


def diagnostics(energy_difference: NDArray[np.float64], gradient: NDArray[np.float64]) -> Image.Image:
    """The paper's plot of a training: energy difference, Langevin gradient magnitude, and how they go together.

    Healthy: the difference swings about 0, its auto-correlation falls fast and turns negative; the gradient settles.
    """
    figure = _figure(10, 7)
    top_left, top_right, bottom_left, bottom_right = figure.subplots(2, 2).flat
    updates = np.arange(1, len(energy_difference) + 1)
    _curve(top_left, updates, energy_difference, "energy difference  U(x+) - U(x-)")
    top_left.axhline(0, color="black", linestyle="--", linewidth=0.8)
    _curve(top_right, updates, gradient, "Langevin gradient magnitude  |grad E|")
    recent = slice(-5000, None)
    difference = _unit(energy_difference[recent], centre=False)  # its mean matters: it should be 0
    slope = _unit(gradient[recent], centre=True)
    lags = np.arange(-15, 16)
    bottom_left.bar(lags, [correlation(difference, slope, lag) for lag in lags.tolist()])
    bottom_left.set(title="cross-correlation of both", xlabel="lag in updates")
    lags = np.arange(16)
    bottom_right.bar(
        lags - 0.2, [correlation(difference, difference, lag) for lag in lags.tolist()], 0.4, label="difference"
    )
    bottom_right.bar(lags + 0.2, [correlation(slope, slope, lag) for lag in lags.tolist()], 0.4, label="gradient")
    bottom_right.set(title="auto-correlations", xlabel="lag in updates")
    bottom_right.legend()
    for axes in (bottom_left, bottom_right):
        axes.axhline(0, color="black", linewidth=0.8)
    return _rendered(figure)


def progress(lines: dict[str, dict[int, float]]) -> Image.Image:
    """A plot for each figure of a training, of its values at updates."""
    figure = _figure(10, 2.5 * math.ceil(len(lines) / 2))
    for i, (name, points) in enumerate(lines.items()):
        axes = figure.add_subplot(math.ceil(len(lines) / 2), 2, i + 1)
        _curve(axes, np.array(list(points)), np.array(list(points.values()), dtype=np.float64), name.replace("_", " "))
    return _rendered(figure)


def bars(groups: dict[str, dict[str, float]], *, title: str) -> Image.Image:
    """One group of bars for each case, one colour for each name."""
    names = list(dict.fromkeys(name for values in groups.values() for name in values))
    figure = _figure(10, 1.2 + 0.8 * len(groups))
    axes = figure.add_subplot()
    height = 0.8 / len(names)
    for i, name in enumerate(names):
        rows = [j + i * height for j, values in enumerate(groups.values()) if name in values]
        drawn = axes.barh(rows, [values[name] for values in groups.values() if name in values], height, label=name)
        axes.bar_label(drawn, fmt="%.2f", padding=2, fontsize=8)
    axes.set_yticks([j + 0.4 - height / 2 for j in range(len(groups))], list(groups))
    axes.invert_yaxis()
    axes.set(title=title)
    axes.legend()
    return _rendered(figure)


def curves(lines: dict[str, dict[int, float]], *, title: str, x: str, y: str) -> Image.Image:
    """One line for each name, of values at whole numbers."""
    figure = _figure(8, 4.5)
    axes = figure.add_subplot()
    for name, points in lines.items():
        axes.plot(list(points), list(points.values()), marker=".", label=name)
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.legend()
    return _rendered(figure)


def correlation(a: NDArray[np.float64], b: NDArray[np.float64], lag: int) -> float:
    """mean of a(t + lag) b(t) over the updates t where both exist, weighted as the authors' plot does (1 / length)."""
    if abs(lag) >= len(a):
        return 0.0
    later, earlier = (a[lag:], b[: len(b) - lag]) if lag >= 0 else (a[:lag], b[-lag:])
    return float((later * earlier).sum() / len(a))


def _unit(values: NDArray[np.float64], *, centre: bool) -> NDArray[np.float64]:
    values = values - values.mean() if centre else values
    scale = np.sqrt(np.mean(values**2))
    return values / scale if scale > 0 else values


def _curve(axes, x: NDArray[np.int64], y: NDArray[np.float64], title: str) -> None:  # type: ignore[no-untyped-def]
    axes.plot(x, y, linewidth=0.5, alpha=0.5)
    window = max(1, len(y) // 100)
    if window > 1:
        axes.plot(x[window - 1 :], np.convolve(y, np.ones(window) / window, "valid"), linewidth=1.5)
        # The first updates are often off by orders of magnitude and would flatten the rest.
        low, high = np.quantile(y[len(y) // 50 :], [0.002, 0.998])
        axes.set_ylim(low - 0.1 * (high - low) - 1e-9, high + 0.1 * (high - low) + 1e-9)
    axes.set(title=title, xlabel="update")


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), dpi=110, layout="constrained")


def _rendered(figure: Figure) -> Image.Image:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    return Image.fromarray(pixels).convert("RGB")
