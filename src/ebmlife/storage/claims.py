"""A folder that long work is kept in says whose it is, from before the first step on."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ebmlife.errors import InUse
from ebmlife.storage import checkpoint
from ebmlife.storage.atomic import atomic_write


@contextmanager
def claimed(file: Path, settings: Mapping[str, Any]) -> Iterator[None]:
    """Within, the file holds the settings of the work in its folder; one that is there already stays.

    Work that fails or is interrupted before it is ever saved takes its claim with it: the next attempt need not agree
    with it.
    """
    mine = not file.exists()
    try:
        if mine:
            with atomic_write(file) as unfinished:
                unfinished.write_text(json.dumps(dict(settings), indent=1))
        yield
    except InUse:  # both saw no claim; it is the other one's now
        raise
    except BaseException:
        if mine and checkpoint.choose(file.parent, None) is None:
            file.unlink(missing_ok=True)
            (file.parent / ".lock").unlink(missing_ok=True)
        raise
