"""Blank matplotlib figures, and pictures of them, without a display."""

import warnings

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image


def blank(width: float, height: float) -> Figure:
    """Returns an empty figure of this size in inches."""
    return Figure(figsize=(width, height), dpi=110, layout="constrained")


def rendered(figure: Figure) -> Image.Image:
    """Returns a figure as an RGB picture."""
    canvas = FigureCanvasAgg(figure)
    with warnings.catch_warnings():  # matplotlib warns if placing a legend takes long, as on a busy machine
        warnings.filterwarnings("ignore", message='Creating legend with loc="best"')
        canvas.draw()  # type: ignore[no-untyped-call]
    pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    return Image.fromarray(pixels).convert("RGB")
