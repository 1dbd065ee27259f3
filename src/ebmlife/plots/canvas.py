"""Blank matplotlib figures, and pictures of them, without a display."""

import warnings

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image


def blank(width: float, height: float) -> Figure:
    """A figure of so many inches to draw in; `rendered` makes a picture of it."""
    return Figure(figsize=(width, height), dpi=110, layout="constrained")


def rendered(figure: Figure) -> Image.Image:
    canvas = FigureCanvasAgg(figure)
    with warnings.catch_warnings():  # on a busy machine the place of a legend takes longer than matplotlib finds usual
        warnings.filterwarnings("ignore", message='Creating legend with loc="best"')
        canvas.draw()  # type: ignore[no-untyped-call]
    pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    return Image.fromarray(pixels).convert("RGB")
