"""The tree of a landscape's basins as a picture."""

import numpy as np
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from PIL import Image

from ebmlife.exam.basins import Landscape
from ebmlife.plots import canvas, pictures

LEAVES = 24  # basins that are drawn, the deepest
_WIDTH = 34  # points of a minimum's image


def draw(landscape: Landscape) -> Image.Image:
    """Each basin as a line from its minimum up to where it joins a lower one, under it the minimum where that is an
    image, and how many starts went down to it. Energies are above the lowest."""
    order = leaves(landscape)
    images = landscape.minima.ndim == 4
    figure = canvas.blank(max(4.0, 0.6 * len(order) + 1), 4.5)
    axes = figure.add_subplot()
    base = landscape.energies[0].item()
    place = {basin: float(i) for i, basin in enumerate(order)}
    reached = {basin: landscape.energies[basin].item() - base for basin in order}  # height of each open line
    for basin in order:
        spot = (place[basin], reached[basin])
        axes.plot(*spot, "o", color="black", markersize=3)
        below = (0, -14 - (_WIDTH + 8 if images else 0))
        size = str(landscape.sizes[basin])
        axes.annotate(size, spot, below, textcoords="offset points", ha="center", fontsize=8)
        if images:
            picture = np.asarray(pictures.image(landscape.minima[basin]))
            shown = OffsetImage(picture, zoom=_WIDTH / picture.shape[1], cmap="gray", norm=None)
            axes.add_artist(AnnotationBbox(shown, spot, (0, -8 - _WIDTH / 2), boxcoords="offset points", pad=0))
    for merge in landscape.merges:
        if merge.higher in place:
            height, sides = merge.height - base, (merge.lower, merge.higher)
            (a, b), (low, high) = (place[side] for side in sides), (reached[side] for side in sides)
            axes.plot([a, a, b, b], [low, height, height, high], color="black", linewidth=1)
            place[merge.lower], reached[merge.lower] = (a + b) / 2, height
    axes.margins(0.08, 0.25 if images else 0.12)
    left_out = len(landscape.minima) - len(order)
    title = f"{len(landscape.minima)} basins" + (f", the deepest {len(order)} shown" if left_out else "")
    axes.set(title=title, ylabel="energy above the lowest", xticks=[])
    return canvas.rendered(figure)


def leaves(landscape: Landscape) -> list[int]:
    """The deepest basins in an order in which no two branches cross."""
    depth = {merge.higher: merge.height - landscape.energies[merge.higher].item() for merge in landscape.merges}
    kept = {0, *sorted(depth, key=lambda basin: -depth[basin])[: LEAVES - 1]}
    under = {basin: [basin] for basin in kept}  # a basin's depth is never above that of the one it joins: both are kept
    for merge in landscape.merges:
        if merge.higher in kept:
            under[merge.lower] += under.pop(merge.higher)
    return under[0]
