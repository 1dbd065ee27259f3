"""Hostile requests to the page of a run, and pages of damaged runs: all end, and the next request is answered."""

import base64
import random
import re
import signal
import socket
import time
from collections.abc import Iterator
from functools import partial

from torture.cases import Case, chance
from torture.commands import Child, Place
from torture.damages import DAMAGES
from torture.requests import requests
from torture.sameness import contents
from torture.workshop import Workshop

NAME = "requests"
DEFAULT = 600
_PATIENCE = 40  # seconds for an answer, or for the server to give up a silent client
_SECRET = "what nobody may read"


def cases(workshop: Workshop, count: int, seed: int) -> Iterator[Case]:
    """Every sixth is a plain request for the page of a damaged run."""
    with workshop.place() as place:
        names = sorted(name for name in contents(place.here) if name.startswith("run/"))
    listed = list(requests(max(count, DEFAULT), seed=seed))
    first = random.Random(seed).sample(listed[:DEFAULT], DEFAULT)
    for index, request in zip(range(count), [*first, *listed[DEFAULT:]], strict=False):
        if index % 6 == 5:
            dice = chance(seed, NAME, index)
            name, kind = dice.choice(names), dice.choice(["a link outside", *DAMAGES])
            yield Case(f"the page with {name} {kind}", partial(_page_of_damaged, workshop, name, kind, index, seed))
        else:
            yield Case(request.name, partial(_asked, workshop, request.content))


def _asked(workshop: Workshop, raw: bytes) -> str | None:
    with workshop.place() as place:
        return _served(place, raw, "--classifier", "classifier")


def _page_of_damaged(workshop: Workshop, name: str, kind: str, index: int, seed: int) -> str | None:
    with workshop.place() as place:
        file = place.here / name
        if kind == "a link outside":
            (place.root / "secret").write_text(_SECRET)
            file.unlink()
            file.symlink_to(place.root / "secret")
        else:
            DAMAGES[kind](file, chance(seed, NAME, index))
        return _served(place, b"")


def _served(place: Place, raw: bytes, *options: str) -> str | None:
    """What is wrong when a server gets these bytes, and then a request as browsers send them."""
    child = place.start("watch", "run", "--port", "0", *options)
    port = _port(child)
    if port is None:
        return child.ended(1).wrong(allowed=(2,))
    answer = _exchanged(port, raw) if raw else b""
    if answer is None:
        return f"neither answered nor closed in {_PATIENCE} s"
    if re.match(rb"HTTP/1\.\d 5(?!05)", answer):  # 505: a version of HTTP that it does not speak
        return f"answered {answer[:60]!r}"
    page = _exchanged(port, b"GET / HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
    if not page or not re.match(rb"HTTP/1\.\d (200|400) ", page):
        return f"no page afterwards, but {(page or b'')[:60]!r}; {child.ended(0).err[-300:]}"
    if _SECRET.encode() in page or _encoded(_SECRET) in page:
        return "the page shows a file from outside"
    child.send(signal.SIGINT)
    return child.ended().wrong(allowed=(0,)) or (child.err[-300:] or None)


def _port(child: Child) -> int | None:
    """That of its address, once it serves; None if it ends before."""
    limit = time.monotonic() + _PATIENCE
    while time.monotonic() < limit and child.wait(0.02) is None:
        if found := re.search(r"http://[^:]+:(\d+)/ ", child.out):
            return int(found[1])
    return None


def _exchanged(port: int, raw: bytes) -> bytes | None:
    """All that comes back until the server closes; None if it does not."""
    received, limit = b"", time.monotonic() + _PATIENCE
    with socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE) as stream:
        try:
            stream.sendall(raw)
            stream.shutdown(socket.SHUT_WR)
            while time.monotonic() < limit:
                more = stream.recv(2**16)
                if not more:
                    return received
                received += more
        except TimeoutError:
            return None
        except OSError:  # closed while we were still talking
            return received
    return None


def _encoded(text: str) -> bytes:
    return base64.b64encode(text.encode())[:16]
