"""`ebmlife report | watch`."""

import argparse
import warnings
from pathlib import Path
from shlex import quote

import torch
from PIL import Image

from ebmlife.attacks import validation
from ebmlife.cli.defending import load_model
from ebmlife.cli.parsing import Command
from ebmlife.defense import classifiers
from ebmlife.errors import BadInput, shown
from ebmlife.plots.pictures import image
from ebmlife.report import robustness
from ebmlife.report.contents import read_contents
from ebmlife.report.images import embedded
from ebmlife.report.server import PageServer
from ebmlife.report.summary import class_names
from ebmlife.report.trial import Defense
from ebmlife.report.trials import Trials
from ebmlife.report.uploads import LIMITS, Form
from ebmlife.report.writing import prepare, write
from ebmlife.runs import build, locate
from ebmlife.runs.model import Model
from ebmlife.runs.progress import ProgressDisplay
from ebmlife.storage.atomic import can_be_made
from ebmlife.storage.interrupt import signals

_EXAMPLES = 8  # images of the data to choose from on the page
_DEVICE = "Device, such as cpu or cuda (default: %(default)s)."


def register(command: Command) -> None:
    report = command("report", _report, "write a report on one or several runs as a single HTML file")
    report.add_argument("folders", nargs="+", metavar="RUN", help="A run's folder, zoo:NAME or hf:user/model.")
    report.add_argument("--out", type=Path, help="The .html file (default for one run: report.html in its folder).")
    report.add_argument(
        "--steps",
        type=int,
        help="Number of Langevin steps if the run has no exam (default: that of an earlier report, or 10000).",
    )
    report.add_argument(
        "--chains",
        type=int,
        help="Number of these chains (default: that of an earlier report, or 64; 1000 for points in the plane).",
    )
    report.add_argument("--no-walk", action="store_true", help="Run no chains; report what the folder already holds.")
    report.add_argument("--device", default="auto", help=_DEVICE)
    watch = command("watch", _watch, "serve the report of a run to a browser, and update it while the run trains")
    watch.add_argument("folder", metavar="RUN", help="A run's folder, zoo:NAME or hf:user/model.")
    watch.add_argument("--port", type=int, default=8750, help="Port, or 0 for any free one (default: %(default)s).")
    watch.add_argument(
        "--host",
        default="127.0.0.1",
        help="Address to listen on (default: %(default)s, which only this computer can reach).",
    )
    watch.add_argument(
        "--classifier",
        help="Classifier to defend, named as for `ebmlife attack`; the page then attacks and purifies your own images.",
    )
    watch.add_argument("--update", type=int, help="Update of the checkpoint that defends it (default: the newest).")
    watch.add_argument("--device", default="auto", help=_DEVICE)


def _report(options: argparse.Namespace, changes: dict[str, str]) -> int:
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # images have a limit of our own
    out = _out(options)
    for folder in options.folders:
        read_contents(folder)  # fail before hours are spent on another folder
    for folder in options.folders if not options.no_walk else ():
        with signals() as stop, ProgressDisplay("Langevin steps") as display:
            done = prepare(
                folder,
                steps=options.steps,
                chains=options.chains,
                device=options.device,
                trust=options.trust,
                progress=lambda walked: display.advance(walked.step, walked.steps),
                stopping=lambda: stop.requested,
            )
        if not done:
            print("stopped and saved; run the same command again to continue")
            return 0
    for note in write(options.folders, out):
        print(f"note: left out of the report: {shown(note)}")
    print(f"report: {shown(out)}")
    return 0


def _out(options: argparse.Namespace) -> Path:
    if options.out is None and len(options.folders) > 1:
        raise BadInput("a report on several runs needs --out, such as --out report.html")
    out: Path = options.out or locate.own(options.folders[0]) / "report.html"
    if out.suffix != ".html" or out.is_dir():
        raise BadInput(f"--out {out} must be a file whose name ends in .html")
    can_be_made(out.parent)
    return out


def _watch(options: argparse.Namespace, changes: dict[str, str]) -> int:
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
    trials = _trials(options) if options.classifier else None
    with PageServer(options.folder, host=options.host, port=options.port, trials=trials) as server:
        print(f"{server.address} shows {shown(options.folder)} live; press Ctrl-C to stop", flush=True)
        if not server.private:
            print("note: other computers on the network can open this page", flush=True)
        if trials is None:
            print(
                f"to attack and purify your own images: ebmlife watch {shown(quote(options.folder))} --classifier NAME",
                flush=True,
            )
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("stopped")
    return 0


def _trials(options: argparse.Namespace) -> Trials:
    model = load_model(options)
    recipe, walk = model.recipe, model.recipe.langevin
    classifier = classifiers.find(options.classifier, trust=options.trust).to(model.device)
    validation.classes(classifier, torch.zeros(1, *model.shape, device=model.device))
    defense = Defense(
        model.energy, walk.step_size, walk.clip, model.shape, model.device, classifier, class_names(recipe)
    )
    form = Form(
        options.classifier,
        model.shape,
        langevin=min(recipe.sampling_steps, LIMITS["langevin"][1]),
        radius=_radius(options.folder),
        examples=_examples(model),
    )
    return Trials(defense, form)


def _examples(model: Model) -> list[str]:
    """Returns some images of the data, if the data are available."""
    try:
        data, _ = build.test_part(model.recipe.data)
    except BadInput:
        return []
    return [embedded(image(x)) for x in data.take(torch.arange(min(_EXAMPLES, len(data))))]


def _radius(folder: str) -> int:
    """Returns the radius of the run's first linf attack in 255ths, or 8."""
    found = (
        attack.settings
        for attack in robustness.read(locate.own(folder))
        if attack.settings["threat"].startswith("linf")
    )
    radii = [round(255 * settings["radius"]) for settings in found]
    least, most = LIMITS["radius"]
    return max(least, min(radii[0], most)) if radii else 8
