"""Pictures inside the page: PNGs as data URIs, and many small images as one sheet that styles cut up."""

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
    tiny: bool  # its pixels are to be seen as squares


def sheet(images: Tensor) -> Sheet:
    """Of (rows, columns, C, H, W), or points (rows, points, 2), which become one image a row."""
    if images.ndim == 3:
        images = torch.stack([scattered(points) for points in images])[:, None]
    rows, columns, channels, height, width = images.shape
    if not 0 < images.numel() <= 3 * _PIXELS:
        raise BadInput(f"{rows}x{columns} images of {channels}x{height}x{width} make no picture")
    tiled = images.permute(2, 0, 3, 1, 4).reshape(channels, rows * height, columns * width)
    return Sheet(embedded(pictures.image(tiled)), rows, columns, width / height, tiny=width < _PLANE)


def scattered(points: Tensor) -> Tensor:
    """Points of the plane (N, 2) as an image (1, H, W): the more points in a pixel, the darker."""
    edges = torch.linspace(-_HALF, _HALF, _PLANE + 1).double()
    counts = torch.histogramdd(points.detach().double().cpu(), bins=[edges, edges]).hist
    shade = (counts / counts.max().clamp_min(1)).sqrt()
    return 1 - 2 * shade.T.flip(0)[None].float()  # y upwards


def embedded(picture: Image.Image) -> str:
    stream = BytesIO()
    picture.save(stream, format="PNG", optimize=True)
    return _uri(stream.getvalue())


def embedded_file(path: Path, inside: SafeFolder) -> str:
    """A PNG file of the run, as it is."""
    content = inside.content(path)
    if content is None:
        raise BadInput(f"{inside.name(path)} is not there")
    try:
        with Image.open(BytesIO(content), formats=["PNG"]) as picture:
            pixels = picture.width * picture.height
            picture.verify()
    except Exception as error:  # Pillow raises a dozen kinds of exceptions for broken files
        raise BadInput(f"{inside.name(path)} is no PNG file that can be read") from error
    if pixels > _PIXELS:
        raise BadInput(f"{inside.name(path)} has {pixels:,} pixels, more than a page shows")
    return _uri(content)


def _uri(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
