"""The messages to and from the plot server: a number, a length, and a pickled chart or a text. Pure.

Both ends import this module, so it must not import Textual, Rich or plotext.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

_HEADER = Struct(">II")
MAX_MESSAGE = 1 << 24
"""Bytes. A longer message does not come from gradtui."""


def packed(number: int, payload: bytes) -> bytes:
    """Return a message; `number` must be below 2**32."""
    return _HEADER.pack(number, len(payload)) + payload


class MessageReader:
    """Splits a stream of bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the messages that `data` completes. Raises ValueError if the stream cannot come from gradtui."""
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            number, length = _HEADER.unpack_from(self._buffer)
            if length > MAX_MESSAGE:
                raise ValueError(f"a message of {length} bytes")
            end = _HEADER.size + length
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            yield number, payload
