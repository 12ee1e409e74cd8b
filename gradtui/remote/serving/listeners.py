"""A listening socket and the thread that accepts its connections."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable

from gradtui.system.descriptors import OwnDescriptor
from gradtui.system.own_thread import OwnThread

_BACKLOG = 128


class Listener:
    """Accepts connections. Each is given to `serve` on a thread of its own.

    Args:
        listening: a bound socket. The listener takes it over.
        room: bounds the connections at a time: one that finds no room is closed at once.
        serve: closes the connection when it returns.
    """

    def __init__(
        self, listening: socket.socket, room: threading.Semaphore, serve: Callable[[socket.socket], None]
    ) -> None:
        self._room, self._serve_one = room, serve
        family, kind = listening.family, listening.type
        listening.listen(_BACKLOG)
        self._descriptor = OwnDescriptor(listening.detach())
        self._socket = socket.socket(family, kind, fileno=self._descriptor.number)

    def start(self) -> None:
        """Begin to accept."""
        # A child that the script forks would keep the socket open after the end of the run.
        os.register_at_fork(after_in_child=self._leave)
        OwnThread(self._accept, "gradtui-server").start()

    def close(self) -> None:
        """Accept no more."""
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
            OwnThread(self._serve, "gradtui-connection", (connected,)).start()

    def _serve(self, connected: socket.socket) -> None:
        try:
            with connected, contextlib.suppress(OSError, ValueError):
                self._serve_one(connected)
        finally:
            self._room.release()
