"""Runs the user's command of `--notify`, in a process that is no child of the training process.

It is forked twice before there are threads, and before torch is imported: a script that waits for any child (`os.wait()`) gets
only its own, and the command outlives the run. The process has its own session and no terminal, and nothing that the script
opens. It runs one command at a time, never through a shell: what the command learns of the run is in its environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from gradtui.system.descriptors import move_aside

TIMEOUT_S = 30.0
"""Seconds after which a command is killed, with all that it has started in its session."""

_MAX_BYTES = 16 * 1024
"""Bytes of a message: a line of JSON, or of text."""

_MAX_DESCRIPTOR = 1 << 16


class NotifyCommand:
    """The process that runs the command, as the training process sees it. Any thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._is_followed = False

    @classmethod
    def start(cls, words: Sequence[str], timeout_s: float = TIMEOUT_S) -> NotifyCommand | None:
        """Fork the process. Call it on the main thread while there is no other one.

        Args:
            words: the command and its arguments.
            timeout_s: seconds that it may take.

        Returns:
            None if no process can be forked.
        """
        try:
            # A stream: macOS has no kind of socket that keeps messages apart and says that the other end is gone.
            ours, theirs = (socket.socket(fileno=move_aside(end.detach())) for end in socket.socketpair())
            between = os.fork()
        except OSError:
            return None
        if between == 0:
            _fork_again(theirs, ours, words, timeout_s)
        # Where the parent ignores SIGCHLD, the kernel has collected it.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(between, 0)
        theirs.close()
        return cls(ours)

    def run(self, facts: Mapping[str, str], failed: Callable[[str], None] | None = None) -> None:
        """Have the command run with these variables in its environment, without waiting for it.

        The first call with `failed` starts a thread, which calls it with one line for each command that fails.
        """
        if failed is not None and not self._is_followed:
            self._is_followed = True
            threading.Thread(target=self._follow, args=(failed,), name="gradtui-notify", daemon=True).start()
        message = json.dumps(dict(facts)).encode() + b"\n"
        # A command that is asked for too often is left out, so that this thread never waits.
        with contextlib.suppress(OSError):
            if len(message) <= _MAX_BYTES:
                self._connection.send(message, socket.MSG_DONTWAIT)

    def _follow(self, failed: Callable[[str], None]) -> None:
        with contextlib.suppress(OSError), self._connection.makefile("rb") as lines:
            while line := lines.readline(_MAX_BYTES):
                failed(line.decode(errors="replace").strip())


def _fork_again(connection: socket.socket, others: socket.socket, words: Sequence[str], timeout_s: float) -> NoReturn:
    """Be the process between the training process and the one that runs the command."""
    try:
        os.setsid()
        if os.fork() == 0:
            others.close()
            _serve(connection, words, timeout_s)
    finally:
        os._exit(0)


def _serve(connection: socket.socket, words: Sequence[str], timeout_s: float) -> None:
    """Run the command for each message, until the training process is gone."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    own = connection.fileno()
    os.closerange(3, own)
    os.closerange(own + 1, _MAX_DESCRIPTOR)
    with connection.makefile("rb") as messages:
        while message := messages.readline(_MAX_BYTES):
            try:
                facts = json.loads(message)
            except ValueError:
                # A message that was sent in part.
                continue
            trouble = _run(words, facts, timeout_s)
            if trouble is not None:
                # The run may have ended.
                with contextlib.suppress(OSError):
                    connection.sendall(f"{trouble}\n".encode())


def _run(words: Sequence[str], facts: Mapping[str, str], timeout_s: float) -> str | None:
    """Run the command once, and return what went wrong in one line."""
    name = words[0]
    try:
        process = subprocess.Popen(
            words,
            env={**os.environ, **facts},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return f"{name} could not be run: {getattr(error, 'strerror', None) or error}"
    try:
        code = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"{name} took more than {timeout_s:g} s and was killed"
    if code == 0:
        return None
    return f"{name} ended with exit code {code}" if code > 0 else f"{name} was ended by signal {-code}"
