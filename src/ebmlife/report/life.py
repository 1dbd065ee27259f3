"""The life cycle of a run on its page: from its exam, or from a shorter exam that the report runs and saves."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebmlife.errors import BadInput
from ebmlife.exam import ExamConfig, LifeCycle, of_run, record
from ebmlife.exam.config import FAST_FEATURES, NO_CLASSIFIER, TRAINING_START
from ebmlife.exam.verdict import LONGRUN, MIDRUN
from ebmlife.report import sound, summary
from ebmlife.report.charts import Chart, Line
from ebmlife.report.safe_files import LARGEST, SafeFolder
from ebmlife.runs import locate
from ebmlife.runs.user_code import NOTHING, Trust
from ebmlife.sampling.long_run import Progress
from ebmlife.storage import checkpoint
from ebmlife.storage.settings import differences
from ebmlife.storage.workspace import Layout, Workspace

_LAYOUT = Layout("life cycle", file="walk.json", result="life-cycle.json", replaces=True)
_STEPS = 10_000  # enough to see samples of shortrun and midrun models degrade
_IMAGES, _POINTS = 64, 1000  # chains of images, and of points in the plane: fewer would not show a density
_SHOWN = 10  # chains of images on the page; points are all shown
_DISTANCES = {  # by the beginning of their names
    "fid": "FID, the Fréchet distance in Inception features",
    "fd_digits": "the Fréchet distance in features of a small classifier of digits, which is not FID",
    "fd_mnist": "the Fréchet distance in features of a small classifier of MNIST, which is not FID",
    "moments": "the Fréchet distance of the states themselves (images averaged to 8x8), which is not FID",
}
_LENGTHS = {"short: new images": 0, "middle: defense": MIDRUN, "long: density": LONGRUN}


@dataclass(frozen=True)
class Life:
    """The life cycle of a run and where it comes from."""

    cycle: LifeCycle
    update: int | None  # of the checkpoint that was examined
    examined: bool  # False: the page's own shorter exam

    @property
    def chains(self) -> int:
        return int(self.cycle.settings["chains"])

    @property
    def distance(self) -> str:
        """The name of the distance, which includes the number of chains."""
        return str(self.cycle.settings["distance"])

    @property
    def measure(self) -> str:
        """The description of the distance."""
        known = (words for name, words in _DISTANCES.items() if self.distance.startswith(name))
        return next(known, "a distance to the data")


def read(own: Path) -> Life | None:
    """Returns the exam in the folder of a run's results, or the page's own shorter exam, or None."""
    inside = SafeFolder(own)
    for place, settings, examined in ((own / "exam", "exam.json", True), (_place(own), "walk.json", False)):
        if inside.file(place / "life-cycle.json", largest=LARGEST) is not None:
            inside.file(place / "life-cycle.safetensors")
            cycle = record.load(place)
            sound.check_cycle(cycle)
            return Life(cycle, _update(inside.content(place / settings)), examined)
    return None


def _update(settings: bytes | None) -> int | None:
    """Returns the update of the checkpoint that was examined, or None if it is unknown."""
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
    """Runs the page's own exam of a run's newest model, unless that or a full exam is finished.

    Distances are measured in features that are cheap: those of the digits classifier, or of images averaged to 8x8.

    Args:
        run: Folder of the run, `zoo:NAME` or `hf:user/model`.
        steps: Number of Langevin steps; None accepts an exam of any length.
        chains: Number of chains; None accepts any number.
        device: Device of the model.
        trust: Functions that the model may call.
        progress: Called with the step that was reached.
        stopping: Asked whether to save and stop.

    Returns:
        Whether it is finished; False if it was stopped.
    """
    own = locate.own(run)
    if (own / "exam" / "life-cycle.json").is_file():
        return True
    place, source = _place(own), locate.find(run)
    saved, requested = _settings(place), _weights(source) | {"steps": steps, "chains": chains}
    same = not differences(saved, requested, [name for name, value in requested.items() if value is not None])
    if same and (place / "life-cycle.json").is_file():
        return True
    settings = saved if same else _new(requested, source)
    config = _config(settings, summary.states(source) or ())
    exam = of_run(run, config, folder=place, device=device, trust_code=trust, scope="page")
    with Workspace(place, settings, _LAYOUT).open():
        cycle = exam.run(progress=progress, stopping=stopping)
        if cycle.complete:
            record.save(cycle, place)
    return cycle.complete


def _config(settings: dict[str, Any], shape: tuple[int, ...]) -> ExamConfig:
    """Returns the settings of a page's exam, which takes a minute: chains start as in training, features are cheap."""
    return ExamConfig(
        steps=settings["steps"],
        chains=settings["chains"],
        start=TRAINING_START,
        features=FAST_FEATURES,
        classifier=NO_CLASSIFIER,
        shown=settings["chains"] if len(shape) == 1 else _SHOWN,
    )


def _place(own: Path) -> Path:
    return own / "report" / "life"


def _weights(source: Path) -> dict[str, Any]:
    """Identifies the weights that are examined."""
    newest = checkpoint.choose(source, None)
    if newest is None:
        raise BadInput(f"{source} holds no checkpoint yet; wait for its first, or add --no-walk")
    manifest = checkpoint.read_manifest(checkpoint.path(source, newest))
    return {"update": newest, "weights": manifest["sha256"]["tensors.safetensors"]}


def _new(requested: dict[str, Any], source: Path) -> dict[str, Any]:
    """Completes the settings of a page's exam."""
    usual = {"steps": _STEPS, "chains": _POINTS if len(summary.states(source) or ()) == 1 else _IMAGES}
    settings = requested | {name: value for name, value in usual.items() if requested[name] is None}
    for name, least, most in (("steps", 0, 10**9), ("chains", 2, 10**6)):
        if not least <= settings[name] <= most:
            raise BadInput(f"--{name} must be at least {least} and at most {most}, got {settings[name]}")
    return settings


def _settings(place: Path) -> dict[str, Any]:
    try:
        settings = json.loads(SafeFolder(place).content(place / "walk.json") or b"{}")
    except (BadInput, ValueError, RecursionError):
        return {}
    known = isinstance(settings, dict) and all(type(settings.get(name)) is int for name in ("steps", "chains"))
    return settings if known else {}


def distance_chart(life: Life) -> Chart:
    """Returns Figure 1 of the paper for this run."""
    cycle = life.cycle
    return Chart(
        "Distance to the data",
        cycle.steps,
        [Line("distance", cycle.metrics["distance"])],
        "Langevin steps",
        f"distance ({life.distance})",
        log_x=True,
        log_y=True,
        regions=_LENGTHS,
        data=cycle.ranges.get("distance"),
        marks={"like data to here": cycle.stable_until} if 0 < cycle.stable_until < cycle.steps[-1] else {},
    )
