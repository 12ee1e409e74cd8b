"""Answer other processes of the same user about a run. A thread accepts connections, and each has a thread of its own.

A viewer that is slow, or gone, costs its own thread only.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gradtui.dataclass import dataclass
from gradtui.protocol.codec import BadEntry
from gradtui.remote.serving.addresses import TcpAddress, UnixAddress, keep_alive
from gradtui.remote.serving.client import address_of, remove_old
from gradtui.remote.serving.listeners import Listener
from gradtui.remote.serving.messages import MAX_REQUEST, PROTOCOL, PROTOCOLS, Connection, objection_to_greeting

_IDLE_S = 60.0
"""Seconds after which a connection that says nothing, or takes nothing, is closed."""
_MAX_CONNECTIONS = 32
_MAX_STRANGERS = 8
"""Connections on TCP at a time that have not shown the token yet."""
_MAX_GREETING = 4_096
_GREETING_S = 10.0
"""Seconds that a client on TCP has to show the token, and to begin TLS."""
_REFUSAL_S = 1.0
"""Seconds that a client with a wrong token waits for the answer."""

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
    """Answers on a Unix socket in a directory, on TCP, or on both.

    It may be made before the process that starts it is forked.

    Args:
        answers: by what is asked. They may be added until the start.
        connections: how many there may be at a time.
    """

    def __init__(self, answers: dict[str, Answer], *, connections: int = _MAX_CONNECTIONS) -> None:
        self.id = ""
        """Names the run, among those of this user on this machine."""
        self.answers = answers
        self.when_found: Callable[[UnixAddress], None] = lambda _address: None
        """Called when it listens on a socket that other processes can find."""
        self._owner = 0
        self._room = threading.Semaphore(connections)
        self._strangers = threading.Semaphore(_MAX_STRANGERS)
        self._changing = threading.Condition()
        self._streaming = 0
        self._listeners: list[Listener] = []
        self._path: Path | None = None
        self.tcp_address: TcpAddress | None = None
        """Where it listens on TCP; None for nowhere."""

    def listen(self, directory: Path) -> UnixAddress:
        """Listen on a socket of its own in a directory, where killed runs may have left theirs. Raises OSError."""
        remove_old(directory)
        self.id = f"{os.getpid()}-{os.urandom(2).hex()}"
        address = address_of(directory, self.id)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
            made.bind(str(address.path))
            os.chmod(address.path, 0o600)
            self._listeners.append(Listener(made, self._room, self._serve))
        self._path = address.path
        self.when_found(address)
        return address

    def listen_on(self, address: TcpAddress) -> TcpAddress:
        """Listen on a port, and return its address. Clients need the token of the address. Raises OSError."""
        family, _, _, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, socket.SOCK_STREAM) as made:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(where)
            port = made.getsockname()[1]
            # Who has no token yet does not take the room of those who have one.
            self._listeners.append(Listener(made, self._strangers, lambda connected: self._meet(connected, address)))
        self.tcp_address = replace(address, port=port)
        return self.tcp_address

    def start(self) -> None:
        """Begin to answer."""
        self._owner = os.getpid()
        for listener in self._listeners:
            listener.start()

    @property
    def streams(self) -> int:
        """The number of streams that go on."""
        return self._streaming

    def wait_for_streams(self, seconds: float) -> None:
        """Wait until no stream goes on, or until the time has passed."""
        if os.getpid() == self._owner:
            with self._changing:
                self._changing.wait_for(lambda: not self._streaming, seconds)

    def close(self) -> None:
        """Answer no more, and remove the socket."""
        if os.getpid() != self._owner:
            return
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()
        for listener in self._listeners:
            listener.close()

    def _meet(self, connected: socket.socket, address: TcpAddress) -> None:
        """Serve a client on TCP once it has shown the token."""
        connected.settimeout(_GREETING_S)
        keep_alive(connected)
        if address.tls is None:
            self._greet(connected, address.token)
            return
        with address.tls.wrap_socket(connected, server_side=True) as encrypted:
            self._greet(encrypted, address.token)

    def _greet(self, connected: socket.socket, token: str) -> None:
        connection = Connection(connected, _MAX_GREETING)
        greeting = connection.receive(_GREETING_S)
        objection = objection_to_greeting(greeting, token)
        if objection is not None:
            # Guessing takes long: few strangers are heard at a time, and each waits.
            threading.Event().wait(_REFUSAL_S)
            connection.send({"error": objection, "protocols": PROTOCOLS})
            return
        connection.send({"protocol": PROTOCOL})
        if not self._room.acquire(blocking=False):
            return
        # It is no stranger any more. The listener releases the place of one when this returns.
        self._strangers.release()
        try:
            connected.settimeout(_IDLE_S)
            connection.allow(MAX_REQUEST)
            self._answer_all(connection)
        finally:
            self._room.release()
            self._strangers.acquire()

    def _serve(self, connected: socket.socket) -> None:
        connected.settimeout(_IDLE_S)
        self._answer_all(Connection(connected, MAX_REQUEST))

    def _answer_all(self, connection: Connection) -> None:
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
        make = self.answers.get(asked) if isinstance(asked, str) else None
        if make is None:
            return {"error": f"it can be asked for {', '.join(sorted(self.answers))}"}
        try:
            answer = make(request)
        except BadEntry as bad:
            return {"error": str(bad)}
        except Exception as error:  # noqa: BLE001 - an error of gradtui costs one answer
            return {"error": f"{type(error).__name__}: {error}"}
        if isinstance(answer, (Stream, Conversation)):
            return answer
        return {"answer": answer} if answer is not None else {"error": "the run does not answer now"}
