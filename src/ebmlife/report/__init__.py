"""The page of a run: what the model is, how its chains age, how it defends, how it was trained; one file, or live."""

from ebmlife.report.contents import Contents, read_contents
from ebmlife.report.page import Page, render
from ebmlife.report.writing import prepare, write

__all__ = ["Contents", "Page", "prepare", "read_contents", "render", "write"]
