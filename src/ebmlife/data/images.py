"""The one place that opens image files: regular files of a few known formats, and of a bounded size.

Pillow knows formats that start other programs (EPS starts Ghostscript) or that hardly anybody audits, whatever a file's
name ends in. Only those of `FORMATS` are tried here.
"""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from ebmlife.errors import BadInput
from ebmlife.storage import regular

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
PIXELS = 2**26  # of one image, such as 8192x8192: a small file can unpack to gigabytes
BYTES = 2**28  # of one file: an uncompressed image of that many pixels


class TooLarge(BadInput):
    """The image has more pixels than are allowed."""


def read(path: Path, *, most: int = BYTES) -> bytes:
    """Returns the contents of a regular file of at most `most` bytes. Raises BadInput for FIFOs and devices."""
    return regular.read(path, most=most)


def opened(data: bytes, *, formats: Sequence[str] = FORMATS, pixels: int = PIXELS) -> Image.Image:
    """Opens an encoded image and reads only its header. Raises BadInput, without a file name, for other data."""
    try:
        image = Image.open(BytesIO(data), formats=list(formats))
    except UnidentifiedImageError as error:
        raise BadInput(f"not a {_either(formats)} image") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:  # beyond Pillow's own limit
        raise TooLarge(f"more than {pixels} pixels; make it smaller") from error
    if image.width * image.height > pixels:
        raise TooLarge(f"{image.width}x{image.height} pixels, expected at most {pixels}; make it smaller")
    return image


def _either(names: Sequence[str]) -> str:
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
