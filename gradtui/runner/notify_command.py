"""Runs the user's command of `--notify`, in a process that is no child of the training process.

It is forked twice before there are threads, and before torch is imported: a script that waits for any child (`os.wait()`) gets
only its own, and the command outlives the run. The process has its own session and no terminal, and nothing that the script
opens. It runs one command at a time, never through a shell: what the command learns of the run is in its environment.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from gradtui.system.descriptors import move_aside
from gradtui.system.own_thread import OwnThread

TIMEOUT_S = 30.0
"""Seconds after which a command is killed, with all that it has started in its session."""

_MAX_BYTES = 16 * 1024
"""Bytes of a message: a line of JSON, or of text."""

_MAX_DESCRIPTOR = 1 << 16


class NotifyCommand:
    """The process that runs the command, as the training process sees it. Any thread."""

    def __init__(self, connection: socket.socket, name: str) -> None:
        self._connection, self._name = connection, name
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._running: set[str] = set()
        """The ids of the calls that have not ended."""
        self._asked = self._failures = 0
        self._last = ""
        """What went wrong in the last call that failed."""
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
        return cls(ours, words[0])

    def run(self, facts: Mapping[str, str], failed: Callable[[str], None] | None = None) -> None:
        """Have the command run with these variables in its environment, without waiting for it.

        The first call with `failed` starts a thread, which calls it with one line for each command that fails.
        """
        if failed is not None:
            self._begin_to_follow(failed)
        # The answer to a call of another process that has this connection is not for this one.
        id_ = f"{os.getpid()}-{next(self._numbers)}"
        message = json.dumps([id_, dict(facts)]).encode() + b"\n"
        with self._changed:
            self._running.add(id_)
            self._asked += 1
        # A command that is asked for too often is left out, so that this thread never waits.
        try:
            is_sent = len(message) <= _MAX_BYTES and self._connection.send(message, socket.MSG_DONTWAIT) > 0
        except OSError:
            is_sent = False
        if not is_sent:
            self._ended(id_, f"{self._name} was not run: it is asked for too often, or its process is gone")

    def outcome(self, seconds: float) -> str:
        """Wait for all commands, some seconds at most. Return in one line what went wrong, empty for nothing."""
        self._begin_to_follow(lambda _: None)
        with self._changed:
            if not self._changed.wait_for(lambda: not self._running, seconds):
                return f"{self._name} still runs after {seconds:g} s, and whether it fails will not be known"
            return self._last + (
                f" ({self._failures} of {self._asked} times)" if self._last and self._asked > 1 else ""
            )

    def _begin_to_follow(self, failed: Callable[[str], None]) -> None:
        if not self._is_followed:
            self._is_followed = True
            OwnThread(self._follow, "gradtui-notify", (failed,)).start()

    def _follow(self, failed: Callable[[str], None]) -> None:
        with contextlib.suppress(OSError), self._connection.makefile("rb") as lines:
            while line := lines.readline(_MAX_BYTES):
                id_, _, trouble = line.decode(errors="replace").strip().partition(" ")
                if self._ended(id_, trouble) and trouble:
                    failed(trouble)

    def _ended(self, id_: str, trouble: str) -> bool:
        """Note how a call has ended. Return whether it is one of this process."""
        with self._changed:
            if id_ not in self._running:
                return False
            self._running.remove(id_)
            if trouble:
                self._failures, self._last = self._failures + 1, trouble
            self._changed.notify_all()
            return True


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
                id_, facts = json.loads(message)
            except ValueError:
                # A message that was sent in part.
                continue
            trouble = _run(words, facts, timeout_s)
            # The run may have ended.
            with contextlib.suppress(OSError):
                connection.sendall(f"{id_} {trouble}\n".encode())


def _run(words: Sequence[str], facts: Mapping[str, str], timeout_s: float) -> str:
    """Run the command once, and return what went wrong in one line; empty if it ended with exit code 0."""
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
        return ""
    return f"{name} ended with exit code {code}" if code > 0 else f"{name} was ended by signal {-code}"
