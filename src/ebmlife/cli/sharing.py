"""`ebmlife push`."""

import argparse
from pathlib import Path

from ebmlife.cli.parsing import Command
from ebmlife.errors import shown
from ebmlife.sharing.push import push


def register(command: Command) -> None:
    give = command("push", _push, "upload the weights of a run with a model card to the Hugging Face hub")
    give.add_argument("folder", type=Path, metavar="RUN", help="The run's folder.")
    give.add_argument("target", metavar="hf:user/model", help="The repository on the hub.")
    give.add_argument("--update", type=int, help="Update of the checkpoint (default: the newest).")
    give.add_argument("--license", help="License of the weights by its identifier on the hub, such as mit.")
    give.add_argument("--private", action="store_true", help="Make a new repository private.")


def _push(options: argparse.Namespace, changes: dict[str, str]) -> int:
    place = push(
        options.folder,
        options.target,
        update=options.update,
        license=options.license,
        private=options.private,
        trust_code=options.trust,
    )
    print(f"{shown(options.target)}: {shown(place)}")
    print(f"use it with: ebmlife sample {shown(options.target)} --out samples.png")
    return 0
