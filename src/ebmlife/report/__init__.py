"""The page of a run: what the model is, how its chains age, how it defends, how it was trained; one file, or live."""

from ebmlife.report.contents import Run, gather
from ebmlife.report.page import Page, render
from ebmlife.report.writing import prepare, write

__all__ = ["Page", "Run", "gather", "prepare", "render", "write"]
