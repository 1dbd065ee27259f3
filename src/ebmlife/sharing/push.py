"""A run's weights given to others, with a card that says what they are."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

from ebmlife.recipes.schema import as_ebm
from ebmlife.runs import build
from ebmlife.runs.export import write_weights
from ebmlife.runs.hub import Hub, find_hub, parse
from ebmlife.runs.user_code import Trust
from ebmlife.sharing.card import model_card
from ebmlife.storage import checkpoint


def push(
    run: Path,
    name: str,
    *,
    update: int | None = None,
    license: str | None = None,
    private: bool = False,
    hub: Hub | None = None,
    trust_code: str | Iterable[str] | Trust = (),
) -> str:
    """Uploads the averaged weights of a run as `hf:user/model` and says where they can be seen.

    Neither banks nor optimizers go with them: what is pushed can be used, not resumed.
    """
    repository, _ = parse(name)
    hub = hub or find_hub()
    model = build.load(run, update=update, device="cpu", trust_code=trust_code)
    at = checkpoint.choose(run, update) or 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        parts = (as_ebm(model.recipe), model.net, model.generator, model.prior)
        write_weights(folder, *parts, shape=model.shape, update=at, origin=run.name)
        card = model_card(model, run, name, update=at, license=license)
        (folder / "README.md").write_text(card)
        return hub.upload(folder, repository, private=private)
