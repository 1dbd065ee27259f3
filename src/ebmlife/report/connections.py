"""Limits of the page server's connections: their time, bytes and number, and the host names that they may use."""

import io
import socket
import threading
import time
from contextlib import suppress
from http.client import HTTPException
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit


class Timed(io.RawIOBase):
    """Reads from a connection until a deadline, and at most a number of bytes, however slowly the client sends.

    After the deadline a read raises TimeoutError. Beyond the bytes it raises HTTPException, which the parser of headers
    answers with status 431.
    """

    def __init__(self, connection: socket.socket, *, seconds: float, most: int) -> None:
        self._connection, self.late = connection, False
        self.allow(seconds=seconds, most=most)

    def allow(self, *, seconds: float, most: int) -> None:
        """Sets the time and the bytes that are allowed from now on."""
        self._deadline, self._left = time.monotonic() + seconds, most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._left <= 0:
            raise HTTPException("too many bytes")
        left = self._deadline - time.monotonic()
        try:
            if left <= 0:  # also if bytes are available
                raise TimeoutError
            self._connection.settimeout(left)
            got = self._connection.recv_into(memoryview(buffer)[: self._left])
        except TimeoutError:
            self.late = True
            raise
        self._left -= got
        return got


class Connections:
    """The open connections, limited in number. A new one replaces the oldest whose request is not yet complete."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._open: dict[socket.socket, bool] = {}  # the oldest first; whether its request has been read

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: socket.socket) -> bool:
        """Returns False if all connections have requests that are being answered."""
        with self._lock:
            if len(self._open) >= self._most:
                slowest = next((it for it, read in self._open.items() if not read), None)
                if slowest is None:
                    return False
                del self._open[slowest]
                with suppress(OSError):
                    slowest.shutdown(socket.SHUT_RDWR)
            self._open[connection] = False
            return True

    def mark_read(self, connection: socket.socket, complete: bool = True) -> None:
        """Notes that the request has been read, so that the connection stays open until it is answered.

        With `complete=False` it has been answered, and the connection can be replaced again.
        """
        with self._lock:
            if connection in self._open:
                self._open[connection] = complete

    def leave(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.pop(connection, None)


def linger(connection: socket.socket, *, seconds: float, most: int) -> None:
    """Ends a connection so that the answer arrives. If bytes were unread, the client would see a reset instead."""
    deadline = time.monotonic() + seconds
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        while most > 0 and (left := deadline - time.monotonic()) > 0:
            connection.settimeout(left)
            got = len(connection.recv(2**16))
            if not got:
                return
            most -= got


def is_own(header: str, host: str) -> bool:
    """Whether a Host header names this server or an IP address. Any other name may belong to an attacker's DNS."""
    name = _hostname(header)
    return name in ("localhost", host, socket.gethostname().lower()) or _is_ip_address(name)


def _is_ip_address(host: str | None) -> bool:
    try:
        ip_address(host or "")
    except ValueError:
        return False
    return True


def _hostname(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None
