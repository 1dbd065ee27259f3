"""Uploads the weights of a run with a model card."""

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
    """Uploads the averaged weights of a run to the Hugging Face hub.

    Banks and optimizers are left out: an uploaded model can be used, but its training cannot be resumed.

    Args:
        run: The run's folder.
        name: The repository, as `hf:user/model`.
        update: Update of the checkpoint; by default the newest.
        license: License of the weights by its identifier on the hub.
        private: Whether to make a new repository private.
        hub: The hub; by default Hugging Face.
        trust_code: The functions that the model may call.

    Returns:
        The address of the model on the hub.
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
