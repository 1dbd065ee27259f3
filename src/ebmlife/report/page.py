"""Renders the contents of runs as sections of one self-contained HTML page."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ebmlife import __version__
from ebmlife.errors import shown
from ebmlife.exam.verdict import LONGRUN
from ebmlife.report import summary, uploads
from ebmlife.report.charts import Chart, number, overlaid
from ebmlife.report.contents import Contents
from ebmlife.report.life import distance_chart
from ebmlife.report.notes import reason
from ebmlife.report.trial import REPLICAS, VERIFY
from ebmlife.report.uploads import Form

_SCRIPTS = ("uplot/uPlot.iife.min.js", "charts.js", "strips.js", "live.js", "trial.js", "start.js")
_STYLES = ("uplot/uPlot.min.css", "page.css")
_SECTIONS = {  # template: title in the navigation
    "about": "",
    "life": "Life cycle",
    "samples": "Samples",
    "defense": "Defense",
    "trial": "Try it",
    "density": "Along the chain",
    "training": "Training",
    "recipe": "Recipe",
}
_USES = {  # what the model can be used for, by verdict
    "shortrun": "Use it to generate images with short chains. Longer chains leave the data.",
    "midrun": "Use it to generate images, and to purify images before they are classified.",
    "longrun": "Use it as a density: its energy tells how likely an image is. It can also generate and purify images.",
}


@dataclass(frozen=True)
class Section:
    name: str
    title: str
    html: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(_bytes(self.html)).hexdigest()[:16]


@dataclass(frozen=True)
class Page:
    title: str
    sections: Sequence[Section]
    live: bool  # whether it updates itself

    @property
    def digest(self) -> str:
        return hashlib.sha256("".join(section.digest for section in self.sections).encode()).hexdigest()[:16]

    @property
    def policy(self) -> str:
        return policy(_joined(_SCRIPTS), live=self.live)

    @property
    def encoded(self) -> bytes:
        return _bytes(self.html)

    @property
    def html(self) -> str:
        script, style = _joined(_SCRIPTS), _joined(_STYLES)
        return (
            _environment()
            .get_template("page.html")
            .render(
                page=self,
                version=__version__,
                policy=self.policy,
                script=Markup(script),
                style=Markup(style),
            )
        )


def render(runs: Sequence[Contents], *, live: bool = False, form: Form | None = None) -> Page:
    """Renders the report on one run, or on several side by side.

    Args:
        runs: The contents of the runs.
        live: Whether the page is served and updates itself.
        form: The form with which users attack and purify their own images, if there is one.

    Returns:
        The page; `Page.html` is its text.
    """
    context: dict[str, Any] = {"runs": runs, "figure": _life_chart(runs), "live": live, "today": summary.today()}
    context |= {
        "longrun": LONGRUN,
        "uses": _USES,
        "form": form,
        "uploads": uploads,
        "replicas": REPLICAS,
        "verify": VERIFY,
    }
    sections = []
    for name, title in _SECTIONS.items():
        html = _drawn(name, title, context)
        if html:
            sections.append(Section(name, title, html))
    return Page(" and ".join(run.name for run in runs), sections, live)


def _drawn(name: str, title: str, context: dict[str, Any]) -> str:
    """Renders a section, or an explanation if that fails."""
    environment = _environment()
    try:
        return environment.get_template(f"{name}.html").render(context).strip()
    except Exception as error:  # of any type: the other sections can still be read
        why = shown(reason(error), 300)
        return environment.get_template("broken.html").render(name=name, title=title, reason=why).strip()


def policy(script: str, *, live: bool) -> str:
    """Returns the content security policy: only the page's own script runs, and only its own server is contacted."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    connect = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data: blob:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def _bytes(html: str) -> bytes:
    """Encodes the page. File names and JSON texts can hold lone surrogates, which UTF-8 cannot encode."""
    return html.encode(errors="replace")


def _life_chart(runs: Sequence[Contents]) -> Chart | None:
    charts = {run.name: distance_chart(run.life) for run in runs if run.life is not None}
    return overlaid(charts) if len(charts) > 1 else next(iter(charts.values()), None)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("ebmlife.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    environment.filters["number"] = number
    return environment


@cache
def _joined(names: Sequence[str]) -> str:
    folder = files("ebmlife.report") / "static"
    return "\n".join((folder / name).read_text().strip() for name in names)
