"""Pictures of states, and charts of trainings, chains and attacks."""

from ebmlife.plots.charts import Panel, bars, burn_in, curves, diagnostics, panels, progress, span, surfaces
from ebmlife.plots.pictures import ages, draw, grid, image, save, to_uint8

__all__ = [
    "Panel",
    "ages",
    "bars",
    "burn_in",
    "curves",
    "diagnostics",
    "draw",
    "grid",
    "image",
    "panels",
    "progress",
    "save",
    "span",
    "surfaces",
    "to_uint8",
]
