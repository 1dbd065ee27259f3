"""`ebmlife push`."""

import argparse
from pathlib import Path

from ebmlife.cli.parsing import Command
from ebmlife.errors import shown
from ebmlife.sharing.push import push


def register(command: Command) -> None:
    parser = command("push", _push, "upload the weights of a run with a model card to the Hugging Face hub")
    parser.add_argument("folder", type=Path, metavar="RUN", help="The run's folder.")
    parser.add_argument("target", metavar="hf:user/model", help="The repository on the hub.")
    parser.add_argument("--update", type=int, help="Update of the checkpoint (default: the newest).")
    parser.add_argument("--license", help="License of the weights by its identifier on the hub, such as mit.")
    parser.add_argument("--private", action="store_true", help="Make a new repository private.")


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
