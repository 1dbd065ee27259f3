"""Hostile requests to the page of a run, as the bytes that go over a socket.

Send the bytes, shut down the writing half, read to the end: a server that holds answers each of them with a status
below 500, or 505 (another version of HTTP). The same seed gives the same requests.
"""

import random
import struct
import zlib
from collections.abc import Callable, Iterator
from itertools import chain, product
from typing import NamedTuple

WISH = "radius=8&steps=1&langevin=1&attacker=transfer"
HOST = b"Host: localhost\r\n"


class Request(NamedTuple):
    name: str
    content: bytes


def requests(n: int = 500, *, seed: int = 0) -> Iterator[Request]:
    """n distinct requests: those that are listed here, or as many of them, and then mutations of them."""
    rng = random.Random(seed)
    listed = list({it.content: it for it in chain.from_iterable(kind() for kind in _KINDS)}.values())
    seen = {it.content for it in listed}
    yield from listed if n >= len(listed) else rng.sample(listed, n)
    while len(seen) < n:
        request = _mutated(rng, rng.choice(listed), len(seen))
        if request.content and request.content not in seen:
            seen.add(request.content)
            yield request


def get(path: bytes, *, method: bytes = b"GET", version: bytes = b"HTTP/1.1", headers: bytes = HOST) -> bytes:
    return method + b" " + path + b" " + version + b"\r\n" + headers + b"\r\n"


def post(path: str, body: bytes, *, kind: str = "image/png", length: int | None = None, headers: bytes = HOST) -> bytes:
    size = len(body) if length is None else length
    said = f"Content-Type: {kind}\r\nContent-Length: {size}\r\n".encode()
    return get(path.encode(), method=b"POST", headers=headers + said) + body


_PATHS = {
    "page": b"/",
    "sections": b"/sections.json?have=",
    "recipe": b"/recipe.json",
    "up": b"/../../../../etc/passwd",
    "up, encoded": b"/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "up, encoded twice": b"/%252e%252e%252fetc%252fpasswd",
    "up, backslashes": b"/..\\..\\..\\windows\\win.ini",
    "up, overlong": b"/..%c0%af..%c0%afetc/passwd",
    "two slashes": b"//etc/passwd",
    "file scheme": b"file:///etc/passwd",
    "another host": b"http://evil.example/",
    "proxy": b"http://169.254.169.254/latest/meta-data/",
    "broken host": b"http://[",
    "broken port": b"http://localhost:99999999999/",
    "star": b"*",
    "no slash": b"sections.json",
    "zero byte": b"/a\x00b",
    "zero byte, encoded": b"/recipe.json%00.png",
    "control characters": b"/\x01\x02\x1b[31m",
    "line feed, encoded": b"/%0d%0aSet-Cookie:%20a=b",
    "high bytes": b"/\xff\xfe\x80",
    "HTML": b"/<script>alert(1)</script>",
    "template": b"/{{7*7}}${7*7}",
    "percent": b"/%",
    "percents": b"/%s%s%s%n%x",
    "percent, no hex": b"/%zz%u1234",
    "long": b"/" + b"a" * 5000,
    "longer": b"/" + b"a" * 60_000,
    "too long": b"/" + b"a" * 70_000,
    "many parts": b"/" + b"a/" * 5000,
    "trial": b"/trial",
    "no trial": b"/trial/0000000000000000",
    "trial, up": b"/trial/../recipe.json",
    "trial, cancel": b"/trial/0000000000000000/cancel",
    "trial, HTML": b"/trial/<b>",
    "query, many fields": b"/sections.json?" + b"&".join(b"a%d=1" % i for i in range(1000)),
    "query, same field": b"/sections.json?" + b"have=1&" * 19,
    "query, broken": b"/sections.json?%ff=%fe&&==;;",
    "query, long": b"/sections.json?have=" + b"f" * 40_000,
    "fragment": b"/#main",
    "semicolon": b"/;a=b",
    "log": b"/log.jsonl",
    "hidden": b"/.git/config",
    "pictures": b"/pictures/samples-999.png",
    "static": b"/static/page.css",
}
_METHODS = (
    b"GET",
    b"HEAD",
    b"POST",
    b"PUT",
    b"DELETE",
    b"OPTIONS",
    b"TRACE",
    b"CONNECT",
    b"get",
    b"G\x00T",
    b"A" * 3000,
)
_VERSIONS = (
    b"HTTP/1.0",
    b"HTTP/0.9",
    b"HTTP/2.0",
    b"HTTP/1",
    b"HTTP/1.1.1",
    b"HTTP/-1.1",
    b"HTTP/1.9999999999999",
    b"X",
)
_HEADERS = {
    "none": b"",
    "no Host value": b"Host:\r\n",
    "two Hosts": HOST + b"Host: evil.example\r\n",
    "rebinding": b"Host: evil.example\r\n",
    "number, but a name": b"Host: 127.0.0.1.evil.example\r\n",
    "IPv6": b"Host: [::1]:8750\r\n",
    "IPv6, broken": b"Host: [::1\r\n",
    "user": b"Host: localhost@evil.example\r\n",
    "blanks": b"Host:     localhost    \r\n",
    "tab": b"Host:\tlocalhost\r\n",
    "high bytes": b"Host: \xff\xfe\r\n",
    "another origin": HOST + b"Origin: https://evil.example\r\n",
    "null origin": HOST + b"Origin: null\r\n",
    "no colon": HOST + b"nothing\r\n",
    "no name": HOST + b": value\r\n",
    "blank in name": HOST + b"A B: c\r\n",
    "folded": HOST + b"A: b\r\n c\r\n\td\r\n",
    "line feeds alone": b"Host: localhost\n",
    "carriage returns alone": b"Host: localhost\r\rA: b\r\n",
    "zero byte": HOST + b"A: \x00\r\n",
    "long line": HOST + b"A: " + b"b" * 60_000 + b"\r\n",
    "line too long": HOST + b"A: " + b"b" * 70_000 + b"\r\n",
    "many": HOST + b"".join(b"A%d: b\r\n" % i for i in range(90)),
    "too many": HOST + b"".join(b"A%d: b\r\n" % i for i in range(300)),
    "too many bytes": HOST + b"".join(b"A%d: %s\r\n" % (i, b"b" * 6000) for i in range(90)),
    "continue": HOST + b"Expect: 100-continue\r\n",
    "upgrade": HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
    "keep alive": HOST + b"Connection: keep-alive\r\n",
    "range": HOST + b"Range: bytes=0-18446744073709551615,-1\r\n",
    "cookie": HOST + b"Cookie: " + b"a=b; " * 2000 + b"\r\n",
    "encoded word": HOST + b"Subject: =?utf-8?b?////?=\r\n",
    "content type, broken": HOST + b'Content-Type: image/png; charset="\xff\r\n',
}
_LENGTHS = (b"", b"-1", b"+5", b"5 5", b"0x10", b"1e3", b"5,5", b"9" * 15, b"9" * 5000, b"\xb2", b"nan", b"4.0", b" ")


def _png(width: int, height: int, data: bytes = b"\0" * 20) -> bytes:
    def part(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    image = part(b"IHDR", header) + part(b"IDAT", zlib.compress(data)) + part(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + image


_BODIES = {
    "empty": b"",
    "text": b"no image",
    "PNG": _png(4, 4),
    "PNG, cut": _png(4, 4)[:40],
    "PNG, huge": _png(2**31 - 1, 2**31 - 1),
    "PNG, large": _png(12_000, 12_000),
    "PNG, no width": _png(0, 4),
    "PNG, too little": _png(64, 64, b""),
    "PNG, bomb": _png(4096, 4096, b"\0" * 100),
    "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(%pipe%id) (r) file\n",
    "SVG": b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>',
    "XML": b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
    "GIF": b"GIF89a\x01\x00\x01\x00\x00\x00\x00;",
    "JPEG, head alone": b"\xff\xd8\xff\xe0\x00\x10JFIF",
    "JPEG, wrong length": b"\xff\xd8\xff\xe1\xff\xffExif\x00\x00",
    "BMP, head alone": b"BM" + struct.pack("<IHHIIiiHHIIiiII", 54, 0, 0, 54, 40, 2**30, 2**30, 1, 32, 0, 0, 0, 0, 0, 0),
    "WebP, head alone": b"RIFF\xff\xff\xff\xffWEBPVP8X",
    "pickle": b"cos\nsystem\n(S'true'\ntR.",
    "JSON": b'{"a":' * 5000,
    "zeros": bytes(100_000),
    "noise": random.Random(1).randbytes(50_000),
}
_TYPES = ("image/png", "image/jpeg", "image/webp", "image/bmp", "image/svg+xml", "text/html", "", "multipart/form-data")
_WISHES = {
    "huge": "radius=999999999999999999999&steps=1&langevin=1&attacker=transfer",
    "negative": "radius=-1&steps=-1&langevin=-1&attacker=transfer",
    "not numbers": "radius=nan&steps=inf&langevin=1e9&attacker=transfer",
    "another attacker": "radius=8&steps=1&langevin=1&attacker=os.system",
    "none": "",
    "others' digits": "radius=%D9%A3&steps=1&langevin=1&attacker=transfer",
    "lists": "radius[]=8&steps[]=1&langevin[]=1&attacker[]=transfer",
}
_NOISE = {
    "a byte": b"\x00",
    "line ends": b"\r\n\r\n\r\n",
    "one line end": b"\n",
    "blanks": b"   \r\n\r\n",
    "a word": b"hello\r\n\r\n",
    "no line end": b"GET / HTTP/1.1",
    "no end of headers": b"GET / HTTP/1.1\r\nHost: localhost\r\nA: b",
    "two words": b"GET /\r\n\r\n",
    "four words": b"GET / HTTP/1.1 more\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.0\r\n",
    "SMTP": b"EHLO example.com\r\nMAIL FROM:<a@b>\r\n",
    "zeros": bytes(20_000),
    "line without end": b"A" * 200_000,
    "pipelined": get(b"/sections.json?have=") * 20,
    "smuggled": get(b"/", headers=HOST + b"Content-Length: 44\r\n") + get(b"/recipe.json"),
}


def _of_paths() -> Iterator[Request]:
    for name, path in _PATHS.items():
        yield Request(f"GET {name}", get(path))
        yield Request(f"POST {name}", get(path, method=b"POST", headers=HOST + b"Content-Length: 0\r\n"))


def _of_methods() -> Iterator[Request]:
    for method, path in product(_METHODS, (b"/", b"/trial")):
        yield Request(f"method {method[:12]!r} {path.decode()}", get(path, method=method))


def _of_versions() -> Iterator[Request]:
    for version, path in product(_VERSIONS, (b"/", b"/recipe.json")):
        yield Request(f"version {version!r} {path.decode()}", get(path, version=version))


def _of_headers() -> Iterator[Request]:
    for (name, headers), path in product(_HEADERS.items(), ("/", "/sections.json", "/trial/0")):
        yield Request(f"headers {name} {path}", get(path.encode(), headers=headers))
        yield Request(f"headers {name}, POST {path}", post(path, b"", headers=headers))


def _of_lengths() -> Iterator[Request]:
    start = HOST + b"Content-Type: image/png\r\n"
    for length in _LENGTHS:
        said = start + b"Content-Length: " + length + b"\r\n"
        yield Request(f"length {length[:12]!r}", get(b"/trial", method=b"POST", headers=said) + b"12345")
    for name, more in {
        "chunked": b"Transfer-Encoding: chunked\r\n",
        "chunked and length": b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "two lengths": b"Content-Length: 5\r\nContent-Length: 500\r\n",
        "missing": b"",
    }.items():
        yield Request(
            f"length {name}", get(b"/trial", method=b"POST", headers=start + more) + b"5\r\nabcde\r\n0\r\n\r\n"
        )
    for length in (6, 1000, 8 * 2**20, 8 * 2**20 + 1, 2**33):
        yield Request(f"length {length} of 5", post(f"/trial?{WISH}", b"12345", length=length))


def _of_bodies() -> Iterator[Request]:
    for (name, body), kind in product(_BODIES.items(), _TYPES):
        yield Request(f"upload {name} as {kind}", post(f"/trial?{WISH}", body, kind=kind))


def _of_wishes() -> Iterator[Request]:
    for name, wish in _WISHES.items():
        yield Request(f"wish {name}", post(f"/trial?{wish}", _BODIES["PNG"]))


def _of_noise() -> Iterator[Request]:
    for name, content in _NOISE.items():
        yield Request(f"noise {name}", content)


_KINDS: tuple[Callable[[], Iterator[Request]], ...] = (
    _of_paths,
    _of_methods,
    _of_versions,
    _of_headers,
    _of_lengths,
    _of_bodies,
    _of_wishes,
    _of_noise,
)


def _mutated(rng: random.Random, request: Request, number: int) -> Request:
    """Some bytes changed, put in, left out or doubled."""
    content = bytearray(request.content[:4096])
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(content) + 1)
        match rng.randrange(4):
            case 0 if at < len(content):
                content[at] = rng.randrange(256)
            case 1:
                content[at:at] = rng.randbytes(rng.randint(1, 4))
            case 2:
                del content[at : at + rng.randint(1, 9)]
            case _:
                content[at:at] = content[at : at + rng.randint(1, 40)]
    return Request(f"mutation {number} of {request.name}", bytes(content))
