"""A process beside the training process that starts our helper processes, so that they are no children of the script's.

A script that waits for any child (`os.wait()`, `os.waitpid(-1, ...)`) or has a handler for SIGCHLD would otherwise meet ours.
The nursery is forked from the supervisor before there are threads, holds nothing but its end of a socket, and ends when the
other end is closed. One request is answered at a time: a line of JSON, with the descriptors that a new process gets as its fds
0 to 2.

`Nursery` is the other end: made in the supervisor, used on the UI thread of the training process.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from typing import Any, NoReturn

from gradtui.runner.descriptors import move_aside

_ANSWER_S = 2.0
"""The nursery answers within milliseconds; one that does not is given up."""

_READ_SIZE = 1 << 16
_HIGHEST_DESCRIPTOR = 1 << 16


class NurseryChild:
    """A process that the nursery has started; the methods are those of `subprocess.Popen`."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self.pid = pid
        self._nursery = nursery
        self._killed = False

    def kill(self) -> None:
        """End it at once. The nursery reaps it."""
        self._killed = True
        self._nursery.ask({"kill": self.pid})

    def poll(self) -> int | None:
        """None until it was killed: nobody here is told how it ended."""
        return -signal.SIGKILL if self._killed else None

    def wait(self, timeout: float | None = None) -> int:  # noqa: ARG002 - as Popen has it
        """How it ended, at once: the nursery has waited for it."""
        return -signal.SIGKILL


class Nursery:
    """Starts processes elsewhere."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.parent = pid
        """The process whose children they are."""
        self._connection = connection
        connection.settimeout(_ANSWER_S)

    @classmethod
    def open(cls) -> Nursery | None:
        """Fork the nursery. None where that fails. Call it while there is no other thread."""
        try:
            ours, theirs = (socket.socket(fileno=move_aside(end.detach())) for end in socket.socketpair())
            pid = os.fork()
        except OSError:
            return None
        if pid == 0:
            _be_the_nursery(theirs)
        theirs.close()
        return cls(ours, pid)

    def start(self, command: Sequence[str], stdin: int, stdout: int, stderr: int) -> NurseryChild:
        """Start a process in a session of its own.

        Raises:
            OSError: it cannot be started, or the nursery is gone.
        """
        answer = self.ask({"command": list(command)}, [stdin, stdout, stderr])
        if "pid" not in answer:
            raise OSError(f"the process could not be started: {answer.get('error')}")
        return NurseryChild(self, answer["pid"])

    def ask(self, request: dict[str, Any], descriptors: Sequence[int] = ()) -> dict[str, Any]:
        """Send a request and wait for its answer.

        Raises:
            OSError: the nursery is gone, or has not answered in time; it is not asked again then.
        """
        try:
            socket.send_fds(self._connection, [json.dumps(request).encode() + b"\n"], list(descriptors))
            line, _ = _receive(self._connection)
        except OSError:
            self._connection.close()
            raise
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """In the supervisor, when the run is over: end the nursery, whoever still holds the socket, and reap it."""
        self._connection.close()
        with contextlib.suppress(OSError):
            os.kill(self.parent, signal.SIGKILL)
            os.waitpid(self.parent, 0)


def _receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    """One line, and the descriptors that came with it. Raises OSError where the other end is closed."""
    line, descriptors = b"", []
    while not line.endswith(b"\n"):
        data, found, _, _ = socket.recv_fds(connection, _READ_SIZE, 3)
        if not data:
            raise OSError("the other end is closed")
        line += data
        descriptors += found
    return line, descriptors


def _be_the_nursery(connection: socket.socket) -> NoReturn:
    try:
        # Neither keys nor a closed terminal are meant for it, and the terminal must not be held open by it.
        os.setsid()
        own = connection.fileno()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        os.closerange(3, own)
        os.closerange(own + 1, _HIGHEST_DESCRIPTOR)
        _serve(connection)
    finally:
        os._exit(0)


def _serve(connection: socket.socket) -> None:
    children: dict[int, subprocess.Popen[bytes]] = {}
    while True:
        try:
            line, descriptors = _receive(connection)
        except OSError:
            break
        try:
            answer = _obey(json.loads(line), descriptors, children)
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            answer = {"error": f"{type(error).__name__}: {error}"}
        for descriptor in descriptors:
            os.close(descriptor)
        connection.sendall(json.dumps(answer).encode() + b"\n")
    for child in children.values():
        child.kill()


def _obey(
    request: dict[str, Any], descriptors: Sequence[int], children: dict[int, subprocess.Popen[bytes]]
) -> dict[str, Any]:
    if "kill" in request:
        child = children.pop(request["kill"])
        child.kill()
        child.wait()
        return {}
    stdin, stdout, stderr = descriptors
    child = subprocess.Popen(
        request["command"], stdin=stdin, stdout=stdout, stderr=stderr, close_fds=True, start_new_session=True
    )
    children[child.pid] = child
    return {"pid": child.pid}
