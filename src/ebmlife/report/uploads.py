"""What a person may ask for and send, checked before anything is done with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from ebmlife.data import images
from ebmlife.data.dataset import from_bytes
from ebmlife.data.squares import squared
from ebmlife.errors import BadInput

TYPES = {"image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WEBP", "image/bmp": "BMP"}
LARGEST = 8 * 2**20  # bytes of an upload
PIXELS = 2**24  # of the image in it: a small file can unpack to gigabytes
LIMITS = {"radius": (0, 64), "steps": (1, 100), "langevin": (1, 5000)}  # least and most of what can be wished for
ATTACKERS = {"transfer": "the classifier only", "bpda": "classifier and defence (BPDA)"}  # gradient: what it knows


@dataclass(frozen=True)
class TrialSettings:
    radius: int  # in 255ths of the range of pixels
    steps: int  # of the attack
    langevin: int  # steps of the defence
    attacker: str  # what the attacker's gradient is

    @classmethod
    def parse(cls, values: dict[str, str]) -> Self:
        counts = {name: _whole(name, values.get(name, ""), *limits) for name, limits in LIMITS.items()}
        if values.get("attacker") not in ATTACKERS:
            raise BadInput(f"the attacker is one of {', '.join(ATTACKERS)}")
        return cls(attacker=values["attacker"], **counts)


def _whole(name: str, text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 9 and least <= int(text) <= most):
        raise BadInput(f"{name} is a whole number from {least} to {most}")
    return int(text)


@dataclass(frozen=True)
class Form:
    """What the page offers."""

    classifier: str  # its name
    shape: tuple[int, ...]  # of the model's images
    langevin: int  # steps of the defence, unless others are wished for
    radius: int = 8
    steps: int = 20
    examples: Sequence[str] = ()  # pictures that can be taken in place of one's own


def decode_image(body: bytes, *, kind: str, shape: tuple[int, ...]) -> Tensor:
    """An upload as an image (C, H, W) in [-1, 1] of the model's size."""
    if kind not in TYPES:
        raise BadInput(f"only {', '.join(TYPES.values())} images can be read here")
    try:
        with images.opened(body, formats=[TYPES[kind]], pixels=PIXELS) as file:
            pixels = squared(file, size=shape[1], channels=shape[0])
    except images.TooLarge as error:
        raise BadInput(f"the image is too large: {error}") from error
    except Exception as error:  # Pillow's decoders raise a dozen kinds of exceptions for broken files
        raise BadInput(f"this file cannot be read as a {TYPES[kind]} image; it may be damaged") from error
    return from_bytes(torch.from_numpy(pixels.copy()))
