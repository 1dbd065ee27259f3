"""Pictures inside the page: PNGs as data URIs, and sheets of many small images, which style sheets crop."""

import base64
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from ebmlife.errors import BadInput
from ebmlife.plots import pictures
from ebmlife.report.safe_files import SafeFolder

_PLANE = 64  # pixels along a side of a picture of points
_PIXELS = 2**26  # of a picture or a sheet
_HALF = 1.5  # the square [-1.5, 1.5]^2 of the plane that it shows


@dataclass(frozen=True)
class Sheet:
    """Images (rows, columns) of one size without gaps."""

    source: str
    rows: int
    columns: int
    ratio: float  # width / height of an image
    tiny: bool  # whether pixels are drawn as squares


def sheet(images: Tensor) -> Sheet:
    """Returns the sheet of images (rows, columns, C, H, W), or of points (rows, points, 2) with one image per row."""
    if images.ndim == 3:
        images = torch.stack([scattered(points) for points in images])[:, None]
    rows, columns, channels, height, width = images.shape
    if not 0 < images.numel() <= 3 * _PIXELS:
        raise BadInput(f"{rows}x{columns} images of {channels}x{height}x{width} cannot be shown as one picture")
    tiled = images.permute(2, 0, 3, 1, 4).reshape(channels, rows * height, columns * width)
    return Sheet(embedded(pictures.image(tiled)), rows, columns, width / height, tiny=width < _PLANE)


def scattered(points: Tensor) -> Tensor:
    """Returns points in the plane (N, 2) as an image (1, H, W) in which pixels with more points are darker."""
    edges = torch.linspace(-_HALF, _HALF, _PLANE + 1).double()
    counts = torch.histogramdd(points.detach().double().cpu(), bins=[edges, edges]).hist
    shade = (counts / counts.max().clamp_min(1)).sqrt()
    return 1 - 2 * shade.T.flip(0)[None].float()  # y upwards


def embedded(picture: Image.Image) -> str:
    """Returns a picture as a data URI."""
    stream = BytesIO()
    picture.save(stream, format="PNG", optimize=True)
    return _uri(stream.getvalue())


def embedded_file(path: Path, inside: SafeFolder) -> str:
    """Returns a PNG file of the run as a data URI."""
    content = inside.content(path)
    if content is None:
        raise BadInput(f"{inside.name(path)} does not exist")
    try:
        with Image.open(BytesIO(content), formats=["PNG"]) as picture:
            pixels = picture.width * picture.height
            picture.verify()
    except Exception as error:  # Pillow raises many types of exceptions for damaged files
        raise BadInput(f"{inside.name(path)} is not a readable PNG file") from error
    if pixels > _PIXELS:
        raise BadInput(f"{inside.name(path)} has {pixels:,} pixels, more than a report can show")
    return _uri(content)


def _uri(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
