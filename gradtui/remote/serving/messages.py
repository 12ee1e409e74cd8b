"""Lines of JSON over a socket. Each side bounds what it reads."""

from __future__ import annotations

import contextlib
import hmac
import socket
import struct
from collections.abc import Sequence
from time import monotonic
from typing import Any

from gradtui.protocol.foreign_text import from_json
from gradtui.protocol.json_text import to_line

PROTOCOL = 1
"""The version of what is said. A client of another version gets one line that says so."""
PROTOCOLS = [PROTOCOL]
"""All versions that this gradtui speaks."""
MAX_REQUEST = 1 << 16
MAX_ANSWER = 1 << 30
_SEND_S = 5
"""Seconds that sending may take in a conversation: beyond them the other side does not read."""


def objection_to_greeting(greeting: Any, token: str) -> str | None:
    """Return why a client on TCP is not served; None if it is. A greeting is `{"protocols": [1], "token": "…"}`."""
    if not isinstance(greeting, dict):
        return "the first line is an object with protocols and token"
    shown = greeting.get("token")
    # The comparison takes as long for a wrong token as for one that is nearly right.
    if not isinstance(shown, str) or not hmac.compare_digest(shown.encode(), token.encode()):
        return "wrong token"
    spoken = greeting.get("protocols")
    if not isinstance(spoken, list) or PROTOCOL not in spoken:
        return f"the run speaks protocol {PROTOCOL}, the client {spoken!r}; use the same version of gradtui"
    return None


class Connection:
    """One side of a connection."""

    def __init__(self, connected: socket.socket, most: int) -> None:
        self._socket, self._most = connected, most
        self._rest = b""

    def allow(self, most: int) -> None:
        """Read lines of at most so many bytes from now on."""
        self._most = most

    def trust(self) -> None:
        """The other side belongs to the run: it may say nothing for long, and much at a time. Sending has a timeout."""
        self._most = MAX_ANSWER
        self._socket.settimeout(None)
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_S, 0))

    def close(self) -> None:
        """End the connection, also while another thread waits for a line."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def send(self, value: Any) -> None:
        """Send a value of JSON. Raises OSError if the other side is gone, or does not read."""
        self._socket.sendall(to_line(value).encode() + b"\n")

    def send_lines(self, lines: Sequence[str]) -> None:
        """Send lines of JSON. Raises OSError as `send` does."""
        self._socket.sendall("".join(f"{line}\n" for line in lines).encode())

    def receive_line(self, seconds: float | None = None) -> bytes | None:
        """Return the next line; None at the end. Raises as `receive` does."""
        began = monotonic()
        while b"\n" not in self._rest:
            if len(self._rest) > self._most:
                raise ValueError("a line is too long")
            if seconds is not None:
                self._socket.settimeout(max(0.01, began + seconds - monotonic()))
                if monotonic() - began > seconds:
                    raise TimeoutError("no line in time")
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                return None
            self._rest += chunk
        line, self._rest = self._rest.split(b"\n", 1)
        if len(line) > self._most:
            raise ValueError("a line is too long")
        return line

    def receive(self, seconds: float | None = None) -> Any:
        """Return the next value; None at the end. `seconds` bounds the time for all of it.

        Raises:
            OSError: nothing came in time.
            ValueError: what came is no line of JSON, or too long.
        """
        line = self.receive_line(seconds)
        return from_json(line) if line is not None else None
