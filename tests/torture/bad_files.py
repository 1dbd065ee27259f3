"""Files that nobody wants in a folder of images, in an archive or in a data set: damaged, hostile and odd ones.

`images`, `archives` and `pickles` yield cases; `every` yields all of them. `case.build(folder)` makes the file of a
case in a folder, and returns its path. Cases are the same in every process.
"""

import io
import os
import random
import socket
import struct
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

Damage = Callable[[bytes], bytes]
# With the endings that are looked for in folders; the last three kinds are found under others' names only.
FORMATS = {"PNG": "png", "JPEG": "jpg", "WEBP": "webp", "BMP": "bmp", "GIF": "png", "TIFF": "png", "PPM": "png"}
FOREIGN = ("EPS", "ICO", "PCX", "SGI", "TGA", "DDS", "IM", "MSP", "XBM", "PDF", "ICNS")  # Pillow writes them too


@dataclass(frozen=True)
class Case:
    kind: str  # image, archive or pickle
    name: str  # of the file
    make: Callable[[Path], None]  # at that path

    def build(self, folder: Path) -> Path:
        path = folder / self.name
        self.make(path)
        return path


def every() -> Iterator[Case]:
    yield from images()
    yield from archives()
    yield from pickles()


def picture(kind: str, size: tuple[int, int] = (24, 17)) -> bytes:
    """A sound image of that format."""
    rng = random.Random(0)
    image = Image.frombytes("RGB", size, rng.randbytes(3 * size[0] * size[1]))
    stream = io.BytesIO()
    modes = {"GIF": "P", "MSP": "1", "XBM": "1"}
    image.convert(modes.get(kind, "RGB")).save(stream, kind)
    return stream.getvalue()


def _flipped(data: bytes, seed: int, *, within: int | None = None) -> bytes:
    rng, changed = random.Random(seed), bytearray(data)
    for _ in range(8):
        changed[rng.randrange(min(within or len(data), len(data)))] ^= 1 << rng.randrange(8)
    return bytes(changed)


DAMAGES: dict[str, Damage] = {
    "empty": lambda data: b"",
    "one-byte": lambda data: data[:1],
    "header-only": lambda data: data[:16],
    "half": lambda data: data[: len(data) // 2],
    "last-byte-gone": lambda data: data[:-1],
    "last-quarter-gone": lambda data: data[: 3 * len(data) // 4],
    "first-byte-gone": lambda data: data[1:],
    "zeros-in-the-middle": lambda data: data[: len(data) // 3] + bytes(len(data) // 3) + data[2 * len(data) // 3 :],
    "ones-in-the-middle": lambda data: data[: len(data) // 3] + b"\xff" * 64 + data[len(data) // 3 + 64 :],
    "flipped-header": lambda data: _flipped(data, 1, within=40),
    "flipped": lambda data: _flipped(data, 2),
    "flipped-again": lambda data: _flipped(data, 3),
    "twice": lambda data: data + data,
    "random-after-header": lambda data: data[:12] + random.Random(4).randbytes(400),
    "reversed": lambda data: data[::-1],
    "size-of-gigabytes": lambda data: _huge(data),
}


def _huge(data: bytes) -> bytes:
    """The width and height in the headers of PNG, BMP, GIF and PPM, as large as they can be; others as they are."""
    if data.startswith(b"\x89PNG"):
        body = b"IHDR" + struct.pack(">II", 2**31 - 1, 2**31 - 1) + data[24:29]
        return data[:12] + body + struct.pack(">I", zlib.crc32(body)) + data[33:]
    if data.startswith(b"BM"):
        return data[:18] + struct.pack("<ii", 2**31 - 1, 2**31 - 1) + data[26:]
    if data.startswith(b"GIF8"):
        return data[:6] + b"\xff\xff\xff\xff" + data[10:]
    return data.replace(b"24 17", b"99999999 99999999") if data.startswith(b"P6") else data[:20]


def _bomb() -> bytes:
    """A PNG of 30,000 x 30,000 white pixels in a hundred kilobytes."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    side, packer = 30_000, zlib.compressobj(9)
    rows = b"".join(packer.compress(bytes(1 + side // 8)) for _ in range(side)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def images() -> Iterator[Case]:
    for kind, ending in FORMATS.items():
        for damage, change in DAMAGES.items():
            yield _bytes(
                f"{kind.lower()}-{damage}.{'png' if ending in ('gif', 'tiff', 'ppm') else ending}", kind, change
            )
    for kind in FOREIGN:
        yield _bytes(f"{kind.lower()}-named-as.png", kind, lambda data: data)
        yield _bytes(f"{kind.lower()}-cut-named-as.jpg", kind, DAMAGES["half"])
    for name, data in {
        "text.png": b"<html>404</html>",
        "svg.png": b'<svg xmlns="http://www.w3.org/2000/svg"/>',
        "postscript.jpg": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(x) print\n",
        "elf.bmp": b"\x7fELF" + bytes(100),
        "zeros.png": bytes(5000),
        "pickle.webp": b"cos\nsystem\n(S'true'\ntR.",
        "only-a-jpeg-marker.jpg": b"\xff\xd8\xff\xe0" * 500,
    }.items():
        yield Case("image", name, lambda path, data=data: _write(path, data))  # type: ignore[misc]
    yield Case("image", "bomb.png", lambda path: _write(path, _bomb()))
    yield from _odd_entries()
    for name in ("\x1b[31mred\x1b[0m.png", "two\nlines.png", "bell\x07.jpg", "\x1b]0;title\x07.png", "caf\udce9.png"):
        yield Case("image", name, lambda path: _write(path, b"not an image"))
    yield Case("image", "x" * 240 + ".png", lambda path: _write(path, b"not an image"))


def _odd_entries() -> Iterator[Case]:
    """What is no regular file, or not in the folder."""

    def sock(path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            here = Path.cwd()
            try:  # a path of a socket has at most a hundred letters
                os.chdir(path.parent)
                server.bind(path.name)
            finally:
                os.chdir(here)

    def sparse(path: Path) -> None:
        with path.open("wb") as stream:
            stream.truncate(2**40)

    yield Case("image", "fifo.png", lambda path: os.mkfifo(path))
    yield Case("image", "socket.png", sock)
    yield Case("image", "sparse-terabyte.png", sparse)
    yield Case("image", "folder.png", lambda path: path.mkdir())
    yield Case("image", "unreadable.png", lambda path: (_write(path, picture("PNG")), path.chmod(0))[0])
    for name, target in {
        "link-to-nothing.png": "nowhere",
        "link-to-itself.png": "link-to-itself.png",
        "link-to-the-folder": ".",
        "link-to-the-root": "/",
        "link-to-zeros.png": "/dev/zero",
        "link-to-a-terminal.png": "/dev/tty",
        "link-outside.png": "/etc/passwd",
        "link-up.png": "..",
    }.items():
        yield Case("image", name, lambda path, target=target: path.symlink_to(target))  # type: ignore[misc]


def _bytes(name: str, kind: str, change: Damage) -> Case:
    return Case("image", name, lambda path: _write(path, change(picture(kind))))


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def archive(members: dict[str, bytes] | None = None) -> bytes:
    """A sound tar as WebDataset writes them."""
    members = members or {"0.png": picture("PNG"), "0.cls": b"3", "1.jpg": picture("JPEG"), "1.cls": b"4"}
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, data in members.items():
            about = tarfile.TarInfo(name)
            about.size = len(data)
            tar.addfile(about, io.BytesIO(data))
    return stream.getvalue()


def _with_size(data: bytes, size: bytes) -> bytes:
    """The first member's size field replaced, its header's checksum made right again."""
    header = bytearray(data[:512])
    header[124:136] = size.ljust(12, b"\0")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + data[512:]


def _with_type(kind: bytes, *, link: str = "/etc/passwd") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        about = tarfile.TarInfo("0.png")
        about.type, about.linkname, about.devmajor, about.devminor = kind, link, 1, 5
        tar.addfile(about)
    return stream.getvalue()[:512] + archive()  # without its end


def _long_names(count: int) -> bytes:
    """A name that is continued in a name that is continued, and so on."""
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 5
    return (header.tobuf(tarfile.GNU_FORMAT) + b"0.png".ljust(512, b"\0")) * count + archive()


def _pax(records: bytes) -> bytes:
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, len(records)
    return header.tobuf(tarfile.USTAR_FORMAT) + records.ljust(-(-len(records) // 512) * 512, b"\0") + archive()


def archives() -> Iterator[Case]:
    sound = archive()
    crafted = {
        "absolute": archive({"/etc/0.png": picture("PNG"), "/etc/0.cls": b"1"}),
        "upwards": archive({"../../0.png": picture("PNG"), "../../0.cls": b"1"}),
        "label-of-a-megabyte": archive({"0.png": picture("PNG"), "0.cls": b"1" * 2**20}),
        "label-not-utf8": archive({"0.png": picture("PNG"), "0.cls": b"\xff\xfe"}),
        "label-negative": archive({"0.png": picture("PNG"), "0.cls": b"-7"}),
        "label-beyond": archive({"0.png": picture("PNG"), "0.cls": b"9" * 30}),
        "label-empty": archive({"0.png": picture("PNG"), "0.cls": b""}),
        "image-damaged": archive({"0.png": picture("PNG")[:90], "0.cls": b"1"}),
        "image-is-postscript": archive({"0.png": picture("EPS"), "0.cls": b"1"}),
        "no-images": archive({"0.txt": b"words"}),
        "size-huge": _with_size(sound, b"77777777777"),
        "size-beyond-64-bits": _with_size(sound, b"\x80" + b"\x7f" * 11),
        "size-negative": _with_size(sound, b"\xff" * 10 + b"\xfe\x00"),
        "size-is-no-number": _with_size(sound, b"12zz"),
        "long-names": _long_names(3000),
        "pax-endless": _pax(b"0 size=1\n"),
        "pax-size-negative": _pax(b"17 size=-1048576\n"),
        "pax-malformed": _pax(b"99999 path=0.png\n"),
        "gzip": zlib.compress(sound),
        "symbolic-link": _with_type(tarfile.SYMTYPE),
        "hard-link": _with_type(tarfile.LNKTYPE),
        "device": _with_type(tarfile.CHRTYPE),
        "fifo-member": _with_type(tarfile.FIFOTYPE),
    }
    for name, data in crafted.items():
        yield Case("archive", f"{name}.tar", lambda path, data=data: _write(path, data))  # type: ignore[misc]
    for damage, change in DAMAGES.items():
        yield Case("archive", f"{damage}.tar", lambda path, change=change: _write(path, change(sound)))  # type: ignore[misc]
    yield Case("archive", "fifo.tar", lambda path: os.mkfifo(path))


def pickles() -> Iterator[Case]:
    """In place of CIFAR-10's test_batch."""
    start = b"\x80\x02"
    crafted = {
        "deep-tuples": start + b")" + b"\x85" * 150_000 + b".",
        "deep-tuples-beyond-all": start + b")" + b"\x85" * 3_000_000 + b".",
        "deep-lists": start + b"]" * 100_000 + b"a" * 99_999 + b".",
        "doubling": start + b")" + b"q\x00h\x00\x86" * 200 + b".",
        "doubling-key": start + b"}K\x01" + b"q\x00h\x00\x86" * 60 + b"K\x01s.",
        "doubling-labels": start + b"}U\x06labels](K\x01" + b"q\x00h\x00\x86" * 60 + b"es.",
        "list-in-itself": start + b"]q\x00h\x00a.",
        "dict-in-itself": start + b"}q\x00U\x01ah\x00s.",
        "call-in-itself": start + b"cnumpy\ndtype\n)Rq\x00h\x00\x85b.",
        "many-marks": start + b"(" * 100_000 + b"t" * 100_000 + b".",
        "many-calls": start + b"cnumpy\ndtype\nq\x00" + b")Rh\x00" * 50_000 + b".",
        "endless-string": start + b"T\xff\xff\xff\x7fabc.",
        "runs-code": b"cos\nsystem\n(S'touch ran'\ntR.",
        "runs-code-2": start + b"cbuiltins\neval\nU\x041/0.\x85R.",
        "unhashable-key": start + b"}]K\x01s.",
        "labels-of-lists": start + b"}(U\x06labels](](K\x01ee" + b"U\x04dataNU\x09filenamesNU\x0bbatch_labelNu.",
        "empty": b"",
        "text": b"<html>404</html>",
    }
    for name, data in crafted.items():
        yield Case("pickle", f"{name}.pickle", lambda path, data=data: _write(path, data))  # type: ignore[misc]
    words = [b")", b"\x85", b"\x86", b"\x87", b"(", b"t", b"]", b"}", b"a", b"e", b"s", b"u", b"N", b"R", b"b"]
    words += [b"K\x01", b"q\x00", b"h\x00", b"U\x01a", b"cnumpy\ndtype\n"]
    for seed in range(40):
        made = start + b"".join(random.Random(seed).choices(words, k=400)) + b"."
        yield Case("pickle", f"random-{seed}.pickle", lambda path, data=made: _write(path, data))  # type: ignore[misc]
