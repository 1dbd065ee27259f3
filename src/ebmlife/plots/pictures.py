"""States as pictures: grids of images, scatter plots of points, and chains at several steps."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from ebmlife.plots.canvas import blank, rendered
from ebmlife.storage.atomic import atomic_write

_TINY, _ENOUGH = 32, 48  # pixels: images narrower than the first are enlarged to at least the second


def to_uint8(x: Tensor) -> Tensor:
    """Maps [-1, 1] to {0..255} and clips values outside."""
    return ((x.detach().float().cpu().clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)


def _visible_channels(x: Tensor) -> Tensor:
    """Keeps 1 or 3 channels of (..., C, H, W)."""
    return x if x.shape[-3] in (1, 3) else x[..., : 3 if x.shape[-3] > 3 else 1, :, :]


def image(x: Tensor) -> Image.Image:
    """Returns one image (C, H, W) in [-1, 1] as a picture."""
    pixels = to_uint8(_visible_channels(x)).permute(1, 2, 0).numpy()
    return Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)


def grid(x: Tensor, *, columns: int | None = None, gap: int = 2) -> Image.Image:
    """Arranges images in rows, enlarged without smoothing if they are tiny.

    Args:
        x: Images (B, C, H, W) in [-1, 1].
        columns: Images in a row; by default the grid is about square.
        gap: White pixels between images.

    Returns:
        The picture of all images.
    """
    x = _visible_channels(x)
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
    """Returns states as a picture: a grid of images, or a scatter plot of points in the plane."""
    if x.ndim == 4:
        return grid(x)
    figure = blank(5, 5)
    axes = figure.add_subplot()
    across, up = _plane(x)
    axes.scatter(across, up, s=2)
    axes.set(xlim=(-1.5, 1.5), ylim=(-1.5, 1.5), aspect="equal")
    return rendered(figure)


def _plane(x: Tensor) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns coordinates (B,), (B,) of states (B, ...): the first two values, or index and value of single numbers."""
    points = x.detach().flatten(1).float().cpu()
    if points.shape[1] == 1:
        return torch.linspace(-1, 1, len(points)).numpy(), points[:, 0].numpy()
    return points[:, 0].numpy(), points[:, 1].numpy()


def save(path: Path, picture: Image.Image) -> None:
    """Writes a picture as a PNG file, atomically."""
    with atomic_write(path) as unfinished:
        picture.save(unfinished, format="PNG")


def ages(frames: Tensor, steps: Sequence[int], *, most: int = 10) -> Image.Image:
    """Shows the same chains at increasing numbers of Langevin steps, one column for each number.

    Args:
        frames: States (len(steps), B, ...) of B chains.
        steps: Langevin steps at each frame.
        most: The largest number of columns; frames in between are left out.

    Returns:
        The picture, with the number of steps above each column.
    """
    chosen = sorted({round(i * (len(steps) - 1) / (most - 1)) for i in range(most)}) if len(steps) > most else None
    kept = list(range(len(steps))) if chosen is None else chosen
    frames, labels = frames[kept], [f"{steps[i]:,}" for i in kept]
    if frames.ndim == 5:
        return _image_ages(frames, labels)
    figure = blank(1.7 * len(labels), 2.1)
    for i, (states, label) in enumerate(zip(frames, labels, strict=True)):
        axes = figure.add_subplot(1, len(labels), i + 1)
        across, up = _plane(states)
        axes.scatter(across, up, s=4)
        axes.set(xlim=(-1.5, 1.5), ylim=(-1.5, 1.5), aspect="equal", xticks=[], yticks=[], title=label)
    return rendered(figure)


def _image_ages(frames: Tensor, labels: list[str]) -> Image.Image:
    count, chains = frames.shape[:2]
    picture = grid(frames.transpose(0, 1).flatten(0, 1), columns=count)
    figure = blank(0.9 * count + 0.2, 0.9 * chains + 0.4)
    axes = figure.add_subplot()
    axes.imshow(np.asarray(picture), cmap="gray", vmin=0, vmax=255)
    tile = (picture.width - 2) / count
    axes.set_xticks([1 + (i + 0.5) * tile for i in range(count)], labels)
    axes.set(yticks=[], xlabel="Langevin steps")
    axes.xaxis.set_ticks_position("top")
    axes.xaxis.set_label_position("top")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    return rendered(figure)
