"""What a connection may take: so much time, so many bytes, and one of so many places."""

import io
import socket
import threading
import time
from contextlib import suppress
from http.client import HTTPException
from typing import Any


class Timed(io.RawIOBase):
    """Reads a connection until a deadline, and no more than so many bytes: a client that dribbles gets no longer.

    Beyond the deadline a read raises TimeoutError, beyond the bytes an HTTPException, which the parser of headers
    answers with 431.
    """

    def __init__(self, connection: socket.socket, *, seconds: float, most: int) -> None:
        self._connection, self.late = connection, False
        self.allow(seconds=seconds, most=most)

    def allow(self, *, seconds: float, most: int) -> None:
        """From now on."""
        self._deadline, self._left = time.monotonic() + seconds, most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._left <= 0:
            raise HTTPException("too many bytes")
        left = self._deadline - time.monotonic()
        try:
            if left <= 0:  # whatever is there to be read
                raise TimeoutError
            self._connection.settimeout(left)
            got = self._connection.recv_into(memoryview(buffer)[: self._left])
        except TimeoutError:
            self.late = True
            raise
        self._left -= got
        return got


class Connections:
    """Those that are open, at most so many. When there is no place, the one goes that has dribbled longest."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._open: dict[socket.socket, bool] = {}  # the oldest first; whether its request has been read

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: socket.socket) -> bool:
        """False: all places are taken by requests that are being answered."""
        with self._lock:
            if len(self._open) >= self._most:
                slowest = next((it for it, heard in self._open.items() if not heard), None)
                if slowest is None:
                    return False
                del self._open[slowest]
                with suppress(OSError):
                    slowest.shutdown(socket.SHUT_RDWR)
            self._open[connection] = False
            return True

    def heard(self, connection: socket.socket, whole: bool = True) -> None:
        """Its request has been read and it keeps its place until it is answered; not `whole`: it was, and is."""
        with self._lock:
            if connection in self._open:
                self._open[connection] = whole

    def leave(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.pop(connection, None)


def linger(connection: socket.socket, *, seconds: float, most: int) -> None:
    """Ends a connection without losing the answer: closed with bytes unread, the client would see a reset instead."""
    deadline = time.monotonic() + seconds
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        while most > 0 and (left := deadline - time.monotonic()) > 0:
            connection.settimeout(left)
            got = len(connection.recv(2**16))
            if not got:
                return
            most -= got
