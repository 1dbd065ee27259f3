"""Reports on runs: the model, its life cycle, its defense and its training, as one HTML file or served live."""

from ebmlife.report.contents import Contents, read_contents
from ebmlife.report.page import Page, render
from ebmlife.report.writing import prepare, write

__all__ = ["Contents", "Page", "prepare", "read_contents", "render", "write"]
