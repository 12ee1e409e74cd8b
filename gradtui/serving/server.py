"""Answer other processes of the same user about a run. A thread accepts connections, and each has a thread of its own.

A viewer that is slow, or gone, costs its own thread only.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradtui.descriptors import OwnDescriptor
from gradtui.protocol.codec import BadEntry
from gradtui.serving.messages import MOST_REQUEST, PROTOCOL, Connection
from gradtui.serving.sockets import SUFFIX

_IDLE_S = 60.0
"""Seconds after which a connection that says nothing, or takes nothing, is closed."""
_MOST_CONNECTIONS = 32

Answer = Callable[[Mapping[str, Any]], Any]
"""Makes the answer to a request. None: the run does not answer now."""


@dataclass(frozen=True)
class Stream:
    """An answer that goes on: a value, and then lines of JSON as they come, until the run or the client ends."""

    first: Any
    lines: Iterator[Sequence[str]]
    """Closed when the client is gone."""


@dataclass(frozen=True)
class Conversation:
    """An answer after which both sides send what they want: a value, and what then goes on with the connection."""

    first: Any
    go_on: Callable[[Connection], None]
    """Returns when the conversation is over. Raises OSError and ValueError as the connection does."""


class RunServer:
    """Listens on a socket of its own in a directory.

    Args:
        directory: where the socket is made.
        answers: by what is asked.
        connections: how many there may be at a time.

    Raises:
        OSError: the socket cannot be made.
    """

    def __init__(self, directory: Path, answers: Mapping[str, Answer], *, connections: int = _MOST_CONNECTIONS) -> None:
        self.id = f"{os.getpid()}-{os.urandom(2).hex()}"
        """Names the run, among those of this user on this machine."""
        self._path = directory / f"{self.id}{SUFFIX}"
        self._answers = answers
        self._owner = os.getpid()
        self._room = threading.Semaphore(connections)
        self._changing = threading.Condition()
        self._streaming = 0
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(str(self._path))
            os.chmod(self._path, 0o600)
            listening.listen(128)
            self._descriptor = OwnDescriptor(listening.detach())
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=self._descriptor.number)
        # A child that the script forks would keep the socket open after the end of the run.
        os.register_at_fork(after_in_child=self._leave)

    @property
    def path(self) -> Path:
        """The socket."""
        return self._path

    def start(self) -> None:
        """Begin to answer."""
        threading.Thread(target=self._accept, name="gradtui-server", daemon=True).start()

    def wait_for_streams(self, seconds: float) -> None:
        """Wait until no stream goes on, or until the time has passed."""
        if os.getpid() == self._owner:
            with self._changing:
                self._changing.wait_for(lambda: not self._streaming, seconds)

    def close(self) -> None:
        """Answer no more, and remove the socket."""
        if os.getpid() != self._owner:
            return
        with contextlib.suppress(OSError):
            self._path.unlink()
        if self._descriptor.is_open:
            # `close` alone does not wake the thread that waits in `accept` (Linux: shutdown(2) does).
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._leave()

    def _leave(self) -> None:
        """Close the socket, if the script has not closed it."""
        self._socket.detach()
        with contextlib.suppress(OSError):
            self._descriptor.close()

    def _accept(self) -> None:
        while self._descriptor.is_open:
            try:
                connected, _ = self._socket.accept()
            except OSError:
                return
            if not self._room.acquire(blocking=False):
                connected.close()
                continue
            threading.Thread(target=self._serve, args=(connected,), name="gradtui-connection", daemon=True).start()

    def _serve(self, connected: socket.socket) -> None:
        try:
            with connected, contextlib.suppress(OSError, ValueError):
                connected.settimeout(_IDLE_S)
                connection = Connection(connected, MOST_REQUEST)
                while (request := connection.receive()) is not None:
                    answer = self._answer(request)
                    if isinstance(answer, Stream):
                        self._send_all(connection, answer)
                        break
                    if isinstance(answer, Conversation):
                        connection.send({"answer": answer.first})
                        connection.trust()
                        answer.go_on(connection)
                        break
                    connection.send(answer)
        finally:
            self._room.release()

    def _send_all(self, connection: Connection, stream: Stream) -> None:
        with self._changing:
            self._streaming += 1
        try:
            connection.send({"answer": stream.first})
            for lines in stream.lines:
                connection.send_lines(lines)
        finally:
            close = getattr(stream.lines, "close", None)
            if close is not None:
                close()
            with self._changing:
                self._streaming -= 1
                self._changing.notify_all()

    def _answer(self, request: Any) -> dict[str, Any] | Stream | Conversation:
        if not isinstance(request, dict):
            return {"error": "a request is an object"}
        if request.get("protocol") != PROTOCOL:
            return {
                "error": f"the run speaks protocol {PROTOCOL}; use the same version of gradtui",
                "protocol": PROTOCOL,
            }
        asked = request.get("ask")
        make = self._answers.get(asked) if isinstance(asked, str) else None
        if make is None:
            return {"error": f"it can be asked for {', '.join(sorted(self._answers))}"}
        try:
            answer = make(request)
        except BadEntry as bad:
            return {"error": str(bad)}
        except Exception as error:  # noqa: BLE001 - an error of gradtui costs one answer
            return {"error": f"{type(error).__name__}: {error}"}
        if isinstance(answer, (Stream, Conversation)):
            return answer
        return {"answer": answer} if answer is not None else {"error": "the run does not answer now"}
