"""Measures how many images per second one core decodes, crops and resizes, in processor time.

python results/loader.py FOLDER SIZE [IMAGES]
"""

import sys
import time

import torch

from ebmlife.data import Cropped, folder

ROUNDS = 3


def main() -> None:
    place, size = sys.argv[1], int(sys.argv[2])
    data = folder(place, size=size, crop=1.0)
    assert isinstance(data, Cropped)
    rows = torch.arange(min(len(data), int(sys.argv[3]) if len(sys.argv) > 3 else 200))
    chances = torch.rand(len(rows), 3, generator=torch.Generator().manual_seed(0))
    data.take_varied(rows, chances)  # fills the disk cache
    rates = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        data.take_varied(rows, chances)
        rates.append(len(rows) / (time.process_time() - begin))
    print(f"{place} at {size}x{size}: {min(rates):.0f} to {max(rates):.0f} images per second of one core")


if __name__ == "__main__":
    main()
