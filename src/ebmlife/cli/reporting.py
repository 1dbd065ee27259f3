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
from ebmlife.report.trial import Defence
from ebmlife.report.trials import Trials
from ebmlife.report.uploads import LIMITS, Form
from ebmlife.report.writing import prepare, write
from ebmlife.runs import build, locate
from ebmlife.runs.model import Model
from ebmlife.runs.progress import ProgressDisplay
from ebmlife.storage.atomic import can_be_made
from ebmlife.storage.interrupt import signals

_EXAMPLES = 8  # images of the data that can be tried


def register(command: Command) -> None:
    report = command("report", _report, "write the page of a run, or of several side by side, as one HTML file")
    report.add_argument("folders", nargs="+", metavar="RUN")
    report.add_argument("--out", type=Path, help="default, for one run: report.html in its folder")
    report.add_argument(
        "--steps", type=int, help="of the page's own walk, where there is no exam (default: 10000, or what is there)"
    )
    report.add_argument("--chains", type=int, help="of that walk (default: 64, of points 1000, or what is there)")
    report.add_argument("--no-walk", action="store_true", help="only show what is there")
    report.add_argument("--device", default="auto")
    watch = command("watch", _watch, "serve the page of a run on this computer, live, while it trains")
    watch.add_argument("folder", metavar="RUN")
    watch.add_argument("--port", type=int, default=8750, help="default: %(default)s; 0: any that is free")
    watch.add_argument("--host", default="127.0.0.1", help="default: %(default)s, which only this computer can reach")
    watch.add_argument("--classifier", help="its name, as for attack: images of your own can be tried on its defence")
    watch.add_argument("--update", type=int, help="the checkpoint that defends; default: the newest")
    watch.add_argument("--device", default="auto")


def _report(options: argparse.Namespace, changes: dict[str, str]) -> int:
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # images have a limit of our own, and a line
    out = _out(options)
    for folder in options.folders:
        read_contents(folder)  # a folder that is no run is said before hours are spent on another
    for folder in options.folders if not options.no_walk else ():
        with signals() as stop, ProgressDisplay("Langevin steps") as display:
            done = prepare(
                folder,
                steps=options.steps,
                chains=options.chains,
                device=options.device,
                trust=options.trust,
                progress=lambda walked: display.advance(walked.step, walked.steps),
                stopping=lambda: stop.wanted,
            )
        if not done:
            print("stopped; the same command goes on where it was")
            return 0
    for note in write(options.folders, out):
        print(f"note: left out of the page: {shown(note)}")
    print(f"report: {shown(out)}")
    return 0


def _out(options: argparse.Namespace) -> Path:
    if options.out is None and len(options.folders) > 1:
        raise BadInput("--out is needed for the page of several runs, such as --out report.html")
    out: Path = options.out or locate.own(options.folders[0]) / "report.html"
    if out.suffix != ".html" or out.is_dir():
        raise BadInput(f"--out {out}: the page is a file that ends in .html")
    can_be_made(out.parent)
    return out


def _watch(options: argparse.Namespace, changes: dict[str, str]) -> int:
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
    trials = _trials(options) if options.classifier else None
    with PageServer(options.folder, host=options.host, port=options.port, trials=trials) as server:
        print(f"{server.address} shows {shown(options.folder)} as it goes on; Ctrl-C ends it", flush=True)
        if not server.private:
            print("note: others on the network can see this page too", flush=True)
        if trials is None:
            print(f"to try images: ebmlife watch {shown(quote(options.folder))} --classifier NAME", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("ended")
    return 0


def _trials(options: argparse.Namespace) -> Trials:
    model = load_model(options)
    recipe, walk = model.recipe, model.recipe.langevin
    classifier = classifiers.find(options.classifier, trust=options.trust).to(model.device)
    validation.classes(classifier, torch.zeros(1, *model.shape, device=model.device))
    defence = Defence(
        model.energy, walk.step_size, walk.clip, model.shape, model.device, classifier, class_names(recipe)
    )
    form = Form(
        options.classifier,
        model.shape,
        langevin=min(recipe.sampling_steps, LIMITS["langevin"][1]),
        radius=_radius(options.folder),
        examples=_examples(model),
    )
    return Trials(defence, form)


def _examples(model: Model) -> list[str]:
    """Some images of the data, where they are at hand."""
    try:
        data, _ = build.test_part(model.recipe.data)
    except BadInput:
        return []
    return [embedded(image(x)) for x in data.take(torch.arange(min(_EXAMPLES, len(data))))]


def _radius(folder: str) -> int:
    """That of the run's first linf attack, or 8."""
    found = (
        attack.settings
        for attack in robustness.read(locate.own(folder))
        if attack.settings["threat"].startswith("linf")
    )
    radii = [round(255 * settings["radius"]) for settings in found]
    least, most = LIMITS["radius"]
    return max(least, min(radii[0], most)) if radii else 8
