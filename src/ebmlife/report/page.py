"""The page: sections rendered from what was gathered, in one HTML file that needs no other."""

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
    "defence": "Defence",
    "trial": "Try it",
    "density": "Along the chain",
    "training": "Training",
    "recipe": "Recipe",
}
_USES = {  # verdict: what the model is good for
    "shortrun": "Use it to make new images with short chains. Longer ones leave the data.",
    "midrun": "Use it to make new images, and to clean images before a classifier sees them.",
    "longrun": "Use it as a density: its energy says how likely an image is. It makes and cleans images too.",
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
    live: bool

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
    """The page of one run, or of several side by side; with a form where images of one's own can be tried."""
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
    """A section; where what was gathered cannot be drawn after all, a line in its place."""
    environment = _environment()
    try:
        return environment.get_template(f"{name}.html").render(context).strip()
    except Exception as error:  # whatever it is: the other sections are still worth reading
        said = shown(reason(error), 300)
        return environment.get_template("broken.html").render(name=name, title=title, said=said).strip()


def policy(script: str, *, live: bool) -> str:
    """Nothing but this page's own script runs, and nothing is fetched but from the server that gave the page."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    connect = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data: blob:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def _bytes(html: str) -> bytes:
    """Names of files and texts of JSON can hold halves of letters, which UTF-8 has no bytes for."""
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
