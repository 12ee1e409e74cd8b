"""The process that draws plots with plotext. The supervisor forks it before there are threads, and before torch is imported.

plotext's C++ code can abort the process that calls it, and its foreign calls would compete for the GIL of the training process.
The server is a child of the supervisor, so a script that waits for any child (`os.wait()`) gets only its own. It affects
neither the terminal nor the run: it has its own session, no core dumps, low priority and limited memory. It ends when a drawing
takes too long, when its socket closes, or when the supervisor is gone. A message is a number, a length, and a pickled
chart or a text. The client imports this module too, so it must not import Textual, Rich or plotext.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from struct import Struct
from typing import NoReturn

from gradtui.system.descriptors import move_aside
from gradtui.tui.charts.chart import Chart

_NICENESS = 10
_MAX_SECONDS_PER_DRAWING = 10
_MAX_MEMORY = 1 << 30
_PARENT_CHECK_SECONDS = 2.0
_READ_SIZE = 1 << 16
_MAX_DESCRIPTOR = 1 << 16
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


class PlotServer:
    """A handle of a running plot server, for the supervisor and the training process."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.connection = connection
        """The socket that takes charts and returns texts (see `MessageReader`); non-blocking."""
        self.pid = pid
        connection.setblocking(False)

    @classmethod
    def start(cls, draw: Callable[[Chart], str] | None = None) -> PlotServer | None:
        """Fork the server. Call it while there is no other thread.

        Args:
            draw: draws one chart; plotext by default, imported with the first chart.

        Returns:
            The server, or None if the process cannot be forked.
        """
        try:
            ours, theirs = (socket.socket(fileno=move_aside(end.detach())) for end in socket.socketpair())
            parent, pid = os.getpid(), os.fork()
        except OSError:
            return None
        if pid == 0:
            _run(theirs, parent, draw or _draw_with_plotext)
        theirs.close()
        return cls(ours, pid)

    def end(self) -> None:
        """End and reap the server, even if other processes hold the socket. Only in the process that started it."""
        self.connection.close()
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def _run(connection: socket.socket, parent: int, draw: Callable[[Chart], str]) -> NoReturn:
    try:
        _restrain()
        own = connection.fileno()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        os.closerange(3, own)
        os.closerange(own + 1, _MAX_DESCRIPTOR)
        serve(connection, parent, draw)
    finally:
        os._exit(0)


def _restrain() -> None:
    # Signals of keys or of a closed terminal must not reach this process.
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The signal mask is inherited, and the alarm that ends a slow drawing must get through.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    for limit, value in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, _MAX_MEMORY)):
        with contextlib.suppress(OSError, ValueError):
            _, hard = resource.getrlimit(limit)
            resource.setrlimit(limit, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def serve(connection: socket.socket, parent: int, draw: Callable[[Chart], str]) -> None:
    """Answer each message with a text of the same number; an empty text means that the drawing failed.

    Returns when the socket closes, or when the parent is no longer the process `parent`.
    """
    connection.setblocking(True)
    reader = MessageReader()
    while True:
        if not select.select([connection], [], [], _PARENT_CHECK_SECONDS)[0]:
            # A forked worker of the script may hold the other end of the socket after the run has ended.
            if os.getppid() != parent:
                return
            continue
        data = connection.recv(_READ_SIZE)
        if not data:
            return
        for number, payload in reader.feed(data):
            # The default action of SIGALRM ends the process even while it is inside C++.
            signal.alarm(_MAX_SECONDS_PER_DRAWING)
            try:
                text = draw(pickle.loads(payload))
            except ImportError:
                return
            except Exception:  # noqa: BLE001 - a drawing that fails costs one picture
                text = ""
            signal.alarm(0)
            connection.sendall(packed(number, text.encode()))


def _draw_with_plotext(chart: Chart) -> str:
    if "plotext" not in sys.modules:
        # A file in the working directory may have the name of a module that plotext needs.
        here = os.path.realpath(os.curdir)
        sys.path[:] = [entry for entry in sys.path if entry and os.path.realpath(entry) != here]
    from gradtui.tui.charts import plotext_figure

    return plotext_figure.draw(chart)
