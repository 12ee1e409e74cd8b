"""Ask live runs."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gradtui.remote.serving.addresses import Address, TcpAddress, UnixAddress
from gradtui.remote.serving.messages import MAX_ANSWER, PROTOCOL, PROTOCOLS, Connection
from gradtui.remote.serving.sockets import SUFFIX

_CONNECT_S = 2.0
_CONNECT_TCP_S = 10.0
_ANSWER_S = 20.0
_ANSWER_IN_LIST_S = 3.0
_NEW_S = 60.0


class NoAnswerError(Exception):
    """A run gives no answer. The message is one line."""


class NoRunError(NoAnswerError):
    """There is no run at an address. The message is one line."""


class RefusedError(NoAnswerError):
    """A run has refused a request. The message is the reason that it gives."""


def ask(address: Address, what: str, **more: Any) -> Any:
    """Return the answer of a run.

    Raises:
        NoAnswerError: there is no such run, or it does not answer, or cannot be asked this.
    """
    with Client(address) as client:
        return client.ask(what, **more)


class Client:
    """A connection to a run. One thread uses it at a time.

    Raises:
        NoAnswerError: there is no such run, or it does not accept the token.
    """

    def __init__(self, address: Address, answer_s: float = _ANSWER_S) -> None:
        self.name = address.name
        is_tcp = isinstance(address, TcpAddress)
        try:
            self._socket = address.connect(_CONNECT_TCP_S if is_tcp else _CONNECT_S)
        except (FileNotFoundError, ConnectionRefusedError):
            hint = "nothing listens there" if is_tcp else "gradtui runs lists them"
            raise NoRunError(f"there is no run {self.name}; {hint}") from None
        except (OSError, UnicodeError) as error:
            # A name with a label that is too long cannot be looked up.
            reason = getattr(error, "strerror", None) or error
            raise NoRunError(f"run {self.name} cannot be reached: {reason}") from None
        self._socket.settimeout(answer_s)
        self._connection = Connection(self._socket, MAX_ANSWER)
        if isinstance(address, TcpAddress):
            self._greet(address.token)

    def _greet(self, token: str) -> None:
        try:
            self._connection.send({"protocols": PROTOCOLS, "token": token})
            answer = self._connection.receive()
        except (OSError, ValueError):
            answer = None
        if not isinstance(answer, dict) or answer.get("protocol") not in PROTOCOLS:
            self.close()
            reason = answer.get("error") if isinstance(answer, dict) else None
            raise NoAnswerError(
                f"run {self.name} does not answer: {reason or 'it speaks another protocol; does it need --tls, or none?'}"
            )

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
            NoAnswerError: the run does not answer. `RefusedError`: it cannot be asked this.
        """
        try:
            self._connection.send({"protocol": PROTOCOL, "ask": what, **more})
            answer = self._connection.receive()
        except (OSError, ValueError) as error:
            raise NoAnswerError(f"run {self.name} does not answer: {error}") from None
        if not isinstance(answer, dict) or "answer" not in answer:
            reason = answer.get("error") if isinstance(answer, dict) else None
            if isinstance(reason, str):
                raise RefusedError(reason)
            raise NoAnswerError(f"run {self.name} does not answer: it has ended")
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
            raise NoAnswerError(f"the connection to run {self.name} is lost: {error}") from None


def address_of(directory: Path, id_: str) -> UnixAddress:
    """Return the address of a run of the same user on the same machine."""
    return UnixAddress(directory / f"{id_}{SUFFIX}")


def live_runs(directory: Path) -> list[dict[str, Any]]:
    """Return the status of each live run, the newest first. Sockets of runs that are gone are removed.

    Of a run that does not answer, as where its process is stopped, it has the `id` and an `error`.
    """
    found = []
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        address = UnixAddress(path)
        if _is_stale(address):
            with contextlib.suppress(OSError):
                path.unlink()
            continue
        try:
            with Client(address, _ANSWER_IN_LIST_S) as client:
                found.append({"id": address.name, **client.ask("status")})
        except NoRunError:
            continue
        except NoAnswerError as error:
            found.append({"id": address.name, "error": str(error)})
    return sorted(found, key=lambda each: str(each.get("since")), reverse=True)


def remove_old(directory: Path) -> None:
    """Remove the sockets that killed runs have left. The run of a new one may not listen yet."""
    for path in directory.glob(f"*{SUFFIX}"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _NEW_S and _is_stale(UnixAddress(path)):
                path.unlink()


def _is_stale(address: UnixAddress) -> bool:
    try:
        address.connect(_CONNECT_S).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False
