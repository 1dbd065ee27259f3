"""Copies the averaged weights of a run into the package's zoo: `python results/release.py RUN [NAME]`.

Weights stay in float32, a few hundred kilobytes per model, so the zoo has exactly the trained weights.
"""

import sys
from pathlib import Path

from ebmlife.runs import build, zoo
from ebmlife.runs.export import write_weights
from ebmlife.storage import checkpoint
from ebmlife.storage.atomic import remove


def main(run: str, name: str | None = None) -> None:
    model = build.load(run, device="cpu")
    folder = Path(zoo.__file__).parent / (name or model.recipe.name)
    update = checkpoint.choose(Path(run), None) or 0
    remove(folder)
    write_weights(
        folder,
        model.recipe,
        model.net,
        model.generator,
        prior=model.prior,
        shape=model.shape,
        update=update,
        origin="trained by ebmlife",
    )
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{folder}: {size / 1e6:.1f} MB, update {update}, recipe {model.recipe.hash}")


if __name__ == "__main__":
    main(*sys.argv[1:])
