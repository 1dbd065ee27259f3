"""Squares cropped from images of any shape: in the center for evaluation, at random for training."""

from collections.abc import Callable, Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from ebmlife.data import images
from ebmlife.errors import BadInput

Box = tuple[int, int, int, int]  # left, top, right, bottom
Cut = Callable[[int, int], Box]  # of an image's width and height


def center(width: int, height: int) -> Box:
    """The largest square, in the center."""
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


def anywhere(chances: Sequence[float], *, area: float = 1.0) -> Cut:
    """A random square: s = area + (1 - area) u_1 of the largest one's area, anywhere (u_2 across, u_3 down).

    `chances` are u_1, u_2, u_3 in [0, 1). With area 1 it is the paper's, whose code has torchvision's RandomResizedCrop
    with neither scale nor aspect changed: the largest square, anywhere along the longer side.
    """
    share, across, down = chances

    def cut(width: int, height: int) -> Box:
        side = max(1, round(sqrt(area + (1 - area) * share) * min(width, height)))
        left, top = int(across * (width - side + 1)), int(down * (height - side + 1))
        return left, top, left + side, top + side

    return cut


def decoded(
    reading: Callable[[], bytes], name: str, *, size: int, channels: int, cut: Cut = center
) -> NDArray[np.uint8]:
    """An image as uint8 (C, size, size), or a BadInput that names it; `reading` gives the encoded image."""
    try:
        with images.opened(reading()) as file:
            return squared(file, size=size, channels=channels, cut=cut)
    except Exception as error:  # Pillow's decoders raise a dozen kinds of exceptions for broken files
        reason = " ".join(str(error).removeprefix(f"{name}: ").split()) or type(error).__name__
        raise BadInput(f"{name}: cannot be read as an image ({reason}); repair or remove the file") from error


def squared(file: Image.Image, *, size: int, channels: int, cut: Cut = center) -> NDArray[np.uint8]:
    """uint8 (C, size, size): a square of an image, resized with Pillow's antialiased bicubic filter.

    Bicubic, because it rings less than Lanczos at hard edges; it is also the filter of clean-fid. Orientation tags are
    applied; transparent pixels are composed over white.
    """
    image = ImageOps.exif_transpose(file)
    if image.mode[0] in "IF":
        # Pillow would clip these to 0..255: 16-bit images turn white, floats in [0, 1] black.
        raise ValueError(f"pixels of mode {image.mode} are not 8-bit; convert the file first")
    image = _opaque(image).convert("L" if channels == 1 else "RGB")
    box = cut(image.width, image.height)
    pixels = np.asarray(image.resize((size, size), Image.Resampling.BICUBIC, box=box))
    return pixels.reshape(size, size, channels).transpose(2, 0, 1)


def _opaque(image: Image.Image) -> Image.Image:
    """The image over white if some of it is transparent, because the colors of transparent pixels are arbitrary."""
    if image.mode not in ("RGBA", "LA", "PA") and "transparency" not in image.info:
        return image
    layer = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
