"""A run's life cycle: its exam where it has sat one, else a shorter walk that the page's command makes and keeps."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebmlife.errors import BadInput
from ebmlife.exam import LifeCycle, digits, life_cycle, record
from ebmlife.exam.reference import PLAIN
from ebmlife.exam.verdict import LONGRUN, MIDRUN
from ebmlife.report import facts, sound
from ebmlife.report.charts import Chart, Line
from ebmlife.report.inside import LARGEST, Inside
from ebmlife.runs import build, locate
from ebmlife.runs.model import Model
from ebmlife.runs.user_code import NOTHING, Trust
from ebmlife.sampling.long_run import Progress
from ebmlife.sampling.rng import generator
from ebmlife.storage import checkpoint
from ebmlife.storage.workspace import Layout, Workspace, differences

_LAYOUT = Layout("life cycle", file="walk.json", result="life-cycle.json", replaces=True)
_STEPS = 10_000  # enough to see shortrun and midrun models age
_IMAGES, _POINTS = 64, 1000  # chains: fewer points of the plane would make no picture of a density
_SHOWN = 10  # of the images; points are all shown
_DISTANCES = {  # by the beginning of their names
    "fid": "FID, the Fréchet distance in Inception's features",
    "fd_digits": "the Fréchet distance in features of a small classifier of digits; it is no FID",
    "moments": "the Fréchet distance of the states themselves, images averaged to 8x8; it is no FID",
}
_LENGTHS = {"short: new images": 0, "middle: defence": MIDRUN, "long: density": LONGRUN}


@dataclass(frozen=True)
class Life:
    cycle: LifeCycle
    update: int | None  # of the checkpoint that walked
    examined: bool  # False: the page's own walk

    @property
    def chains(self) -> int:
        return int(self.cycle.settings["chains"])

    @property
    def distance(self) -> str:
        """Its name, which carries the number of chains."""
        return str(self.cycle.settings["distance"])

    @property
    def measure(self) -> str:
        """What the distance is, in words."""
        known = (words for name, words in _DISTANCES.items() if self.distance.startswith(name))
        return next(known, "a distance to the data")


def read(own: Path) -> Life | None:
    """The exam in the folder of a run's results, or the page's own walk, or nothing."""
    inside = Inside(own)
    for place, settings, examined in ((own / "exam", "exam.json", True), (_place(own), "walk.json", False)):
        if inside.file(place / "life-cycle.json", largest=LARGEST) is not None:
            inside.file(place / "life-cycle.safetensors")
            cycle = record.load(place)
            sound.check_cycle(cycle)
            return Life(cycle, _update(inside.content(place / settings)), examined)
    return None


def _update(settings: bytes | None) -> int | None:
    """Of the checkpoint that walked, where it is known."""
    try:
        update = json.loads(settings or b"{}")["update"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    return update if type(update) is int else None


def walk(
    run: str | Path,
    *,
    steps: int | None = None,
    chains: int | None = None,
    device: str = "auto",
    trust: Trust = NOTHING,
    progress: Callable[[Progress], None] = lambda _: None,
    stopping: Callable[[], bool] = lambda: False,
) -> bool:
    """Lets a run's newest model walk for its page, unless it has done so or sat an exam; False: stopped before the end.

    Without `steps` or `chains`, any walk of these weights will do. Distances are taken where that is cheap: in the
    digits' own classifier, or of images averaged to 8x8.
    """
    own = locate.own(run)
    if (own / "exam" / "life-cycle.json").is_file():
        return True
    place, source = _place(own), locate.find(run)
    there, wanted = _settings(place), _weights(source) | {"steps": steps, "chains": chains}
    same = not differences(there, wanted, [name for name, value in wanted.items() if value is not None])
    if same and (place / "life-cycle.json").is_file():
        return True
    settings = there if same else _new(wanted, source)
    model = build.load(run, device=device, trust_code=trust)
    with Workspace(place, settings, _LAYOUT).open():
        cycle = _walked(model, place, settings["steps"], settings["chains"], progress, stopping)
        if cycle.complete:
            record.save(cycle, place)
    return cycle.complete


def _walked(
    model: Model,
    place: Path,
    steps: int,
    chains: int,
    progress: Callable[[Progress], None],
    stopping: Callable[[], bool],
) -> LifeCycle:
    recipe = model.recipe
    return life_cycle(
        model.energy,
        model.start(chains, rng=generator(0, "page births", device=model.device)).x,
        steps=steps,
        step_size=recipe.langevin.step_size,
        data=build.DATA.make(recipe.data),
        data_noise=recipe.noise_learned,
        features=digits.FEATURES if recipe.data.kind == "digits" else PLAIN,
        clip=recipe.langevin.clip,
        shown=chains if len(model.shape) == 1 else _SHOWN,
        folder=place,
        progress=progress,
        stopping=stopping,
    )


def _place(own: Path) -> Path:
    return own / "report" / "life"


def _weights(source: Path) -> dict[str, Any]:
    """Which ones walk."""
    newest = checkpoint.choose(source, None)
    if newest is None:
        raise BadInput(f"{source} holds no checkpoint yet; wait for its first, or add --no-walk")
    manifest = checkpoint.read_manifest(checkpoint.path(source, newest))
    return {"update": newest, "weights": manifest["sha256"]["tensors.safetensors"]}


def _new(wanted: dict[str, Any], source: Path) -> dict[str, Any]:
    """The settings of a walk, complete."""
    usual = {"steps": _STEPS, "chains": _POINTS if len(facts.states(source) or ()) == 1 else _IMAGES}
    settings = wanted | {name: value for name, value in usual.items() if wanted[name] is None}
    for name, least, most in (("steps", 0, 10**9), ("chains", 2, 10**6)):
        if not least <= settings[name] <= most:
            raise BadInput(f"--{name} must be at least {least} and at most {most}, got {settings[name]}")
    return settings


def _settings(place: Path) -> dict[str, Any]:
    try:
        settings = json.loads(Inside(place).content(place / "walk.json") or b"{}")
    except (BadInput, ValueError, RecursionError):
        return {}
    known = isinstance(settings, dict) and all(type(settings.get(name)) is int for name in ("steps", "chains"))
    return settings if known else {}


def distance_chart(life: Life) -> Chart:
    """Figure 1 of the paper for this run."""
    cycle = life.cycle
    return Chart(
        "Distance to the data",
        cycle.steps,
        [Line("distance", cycle.figures["distance"])],
        "Langevin steps",
        f"distance ({life.distance})",
        log_x=True,
        log_y=True,
        regions=_LENGTHS,
        data=cycle.ranges.get("distance"),
        marks={"like data to here": cycle.stable_until} if 0 < cycle.stable_until < cycle.steps[-1] else {},
    )
