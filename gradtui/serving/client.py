"""Ask live runs."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gradtui.serving.messages import MOST_ANSWER, PROTOCOL, Connection
from gradtui.serving.sockets import SUFFIX

_CONNECT_S = 2.0
_ANSWER_S = 20.0


class NoAnswerError(Exception):
    """A run gives no answer. The message is one line."""


def ask(directory: Path, id_: str, what: str, **more: Any) -> Any:
    """Return the answer of a run.

    Raises:
        NoAnswerError: there is no such run, or it does not answer, or cannot be asked this.
    """
    with Client(directory, id_) as client:
        return client.ask(what, **more)


class Client:
    """A connection to a run. One thread uses it at a time.

    Raises:
        NoAnswerError: there is no such run.
    """

    def __init__(self, directory: Path, id_: str) -> None:
        self.id = id_
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(_CONNECT_S)
            self._socket.connect(str(directory / f"{id_}{SUFFIX}"))
            self._socket.settimeout(_ANSWER_S)
        except OSError as error:
            self._socket.close()
            if isinstance(error, (FileNotFoundError, ConnectionRefusedError)):
                raise NoAnswerError(f"there is no run {id_}; gradtui runs lists them") from None
            raise NoAnswerError(f"run {id_} does not answer: {error}") from None
        self._connection = Connection(self._socket, MOST_ANSWER)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection, also while another thread waits for a line."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def trust(self) -> None:
        """Begin a conversation, in which the run may say nothing for long."""
        self._connection.trust()

    def forget(self) -> None:
        """Close this process's end, as a child must that inherited it: the connection goes on."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def send_lines(self, lines: Sequence[str]) -> None:
        """Send lines of JSON in a conversation. Raises OSError if the run is gone."""
        self._connection.send_lines(lines)

    def ask(self, what: str, **more: Any) -> Any:
        """Return the answer to a request; of a stream, its first value.

        Raises:
            NoAnswerError: the run does not answer, or cannot be asked this.
        """
        try:
            self._connection.send({"protocol": PROTOCOL, "ask": what, **more})
            answer = self._connection.receive()
        except (OSError, ValueError) as error:
            raise NoAnswerError(f"run {self.id} does not answer: {error}") from None
        if not isinstance(answer, dict) or "answer" not in answer:
            reason = answer.get("error") if isinstance(answer, dict) else None
            raise NoAnswerError(f"run {self.id} does not answer: {reason or 'it has ended'}")
        return answer["answer"]

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of a stream until it ends.

        Raises:
            NoAnswerError: nothing comes any more.
        """
        try:
            while (line := self._connection.receive_line()) is not None:
                yield line
        except (OSError, ValueError) as error:
            raise NoAnswerError(f"the connection to run {self.id} is lost: {error}") from None


def live_runs(directory: Path) -> list[dict[str, Any]]:
    """Return the status of each live run, the newest first. Sockets of runs that are gone are removed."""
    found = []
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        if _is_stale(path):
            with contextlib.suppress(OSError):
                path.unlink()
            continue
        with contextlib.suppress(NoAnswerError):
            status = ask(directory, path.name.removesuffix(SUFFIX), "status")
            if isinstance(status, dict):
                found.append({"id": path.name.removesuffix(SUFFIX), **status})
    return sorted(found, key=lambda each: str(each.get("since")), reverse=True)


def _is_stale(path: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connected:
            connected.settimeout(_CONNECT_S)
            connected.connect(os.fspath(path))
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False
