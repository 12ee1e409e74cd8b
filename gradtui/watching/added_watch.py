"""The watch of a training that gradtui did not start: opened and closed between two lines of the script, while it runs.

It lasts as long as another process looks at it. Then it closes, and the training goes on as if it had never been watched.
"""

from __future__ import annotations

import atexit
import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from gradtui.configuration.choices import DEFAULT_SHARE
from gradtui.probe.memory import release_this_process
from gradtui.probe.session import active_probe
from gradtui.remote.live.answers import LiveRun
from gradtui.remote.serving.messages import Connection
from gradtui.remote.serving.server import Conversation, RunServer
from gradtui.remote.serving.sockets import socket_directory
from gradtui.system.own_thread import OwnThread
from gradtui.system.rank_environment import rank_of_several
from gradtui.watching.injected import call_at_next_line
from gradtui.watching.watched_training import Watch, script_name

_FIRST_S = 30.0
"""Seconds in which the first viewer must come."""
_LOOK_S = 0.5
_LAST_EVENTS_S = 1.0
"""Seconds that the end of the process waits for viewers that still receive events."""
_OWN_STREAM_S = 2.5
"""Seconds in which the run notices that a viewer that has left takes no more events."""
_REMOVED_S = 15.0
"""Seconds that a viewer that has left then waits until the hooks are removed. A client waits 20 s for an answer."""


def open_added(directory: str | None) -> str:
    """Watch this process from now on, and return the path of the socket on which it can be asked. Main thread.

    Args:
        directory: of the socket; None for the one of this process's environment.

    Raises:
        RuntimeError: the process is watched already.
        OSError: it cannot listen there.
    """
    if active_probe() is not None:
        raise RuntimeError("it is watched already, by gradtui.watch or gradtui.apply_schedule")
    added = AddedWatch()
    return added.serve(Path(directory) if directory is not None else socket_directory())


class AddedWatch(Watch):
    """A watch with what other processes ask, and the thread that closes it.

    Args:
        at_next_line: as `call_at_next_line`.
    """

    _is_of_script = False

    def __init__(self, at_next_line: Callable[[Callable[[], None]], bool] = call_at_next_line) -> None:
        super().__init__(progress=False, budget=DEFAULT_SHARE)
        self._at_next_line = at_next_line
        self._changed = threading.Condition()
        self._staying = 0
        self._had_viewer = False
        self._removed = threading.Event()
        self._server = RunServer({})
        # A change of one rank alone would make the ranks of its job diverge, or wait for each other for ever.
        commands = self._commands if rank_of_several(os.environ) is None else None
        self._live = LiveRun(self._reporter.look, self._events, commands, script_name(), None)

    def serve(self, directory: Path) -> str:
        """Open the watch, and let other processes ask it. Return the path of its socket in the directory. Raises OSError."""
        path = self._server.listen(directory).path
        self._server.answers |= {**self._live.answers, "stay": lambda _: Conversation({}, self._stay)}
        self._server.start()
        try:
            for optimizer in _optimizers():
                self.probe.view.discovery.register_optimizer(optimizer)
            self.open()
            # The models are shown before the first step.
            self.probe.hooks.guard("models", self.probe.view.reconcile, 0)
        except BaseException:
            # Also Ctrl+C, which the script gets: it may come between any two instructions.
            self.close()
            self._server.close()
            raise
        atexit.register(self._end)
        OwnThread(self._keep, "gradtui-keeper").start()
        return str(path)

    def _stay(self, connection: Connection) -> None:
        """Keep the watch open until the other side leaves. If it says so first, answer what came of it."""
        with self._changed:
            self._staying += 1
            self._had_viewer = True
        leaves = None
        try:
            leaves = connection.receive()
        finally:
            with self._changed:
                self._staying -= 1
                self._changed.notify()
        if leaves is not None:
            self._removed.wait(_OWN_STREAM_S)
            if not self._is_looked_at():
                self._removed.wait(_REMOVED_S)
            is_removed = self._removed.is_set()
            connection.send({"removed": is_removed, "others": not is_removed and self._is_looked_at()})

    def _keep(self) -> None:
        """Close the watch when the last viewer has left. Thread of its own."""
        with self._changed:
            self._changed.wait_for(lambda: self._had_viewer, _FIRST_S)
            while self._is_looked_at():
                self._changed.wait(_LOOK_S)
        # Nobody could release a run that is held.
        self._commands.close()
        # The main thread may have gone on into a function that was not asked.
        while not self._removed.is_set():
            self._at_next_line(self._remove)
            self._removed.wait(_LOOK_S)
        self._live.finish()
        self._server.close()

    def _is_looked_at(self) -> bool:
        return bool(self._staying or self._server.streams)

    def _remove(self) -> None:
        """Remove all hooks. Main thread."""
        atexit.unregister(self._end)
        self.close()
        release_this_process()
        self._removed.set()

    def _end(self) -> None:
        """The process ends."""
        if os.getpid() == self._owner:
            self.close()
            self._removed.set()
            self._live.finish()
            self._server.wait_for_streams(_LAST_EVENTS_S)
            self._server.close()


def _optimizers() -> list[Any]:
    """Return the optimizers that are alive. The models are found from their parameters."""
    # `type(o)` and not isinstance, which would resolve a lazy proxy of the script.
    return [each for each in gc.get_objects() if issubclass(type(each), Optimizer) and "param_groups" in vars(each)]
