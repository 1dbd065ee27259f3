"""`ebmlife push`."""

import argparse
from pathlib import Path

from ebmlife.cli.parsing import Command
from ebmlife.errors import shown
from ebmlife.sharing.push import push


def register(command: Command) -> None:
    give = command("push", _push, "upload a run's weights and a model card to the Hugging Face hub")
    give.add_argument("folder", type=Path)
    give.add_argument("target", metavar="hf:user/model")
    give.add_argument("--update", type=int, help="the checkpoint; default: the newest")
    give.add_argument("--license", help="of the weights, as the hub writes it, such as mit")
    give.add_argument("--private", action="store_true")


def _push(options: argparse.Namespace, changes: dict[str, str]) -> int:
    place = push(
        options.folder,
        options.target,
        update=options.update,
        license=options.license,
        private=options.private,
        trust_code=options.trust,
    )
    print(f"{shown(options.target)}: {shown(place)}\nuse it: ebmlife sample {shown(options.target)} --out samples.png")
    return 0
