"""Child processes of the script that train: they run under gradtui, and report to the run that has started them.

`torch.multiprocessing.start_processes` starts those of `mp.spawn`, of Lightning's `ddp_spawn` and of accelerate's
`notebook_launcher`. Lightning's other launcher starts the script again by `subprocess.Popen`, once for each further device.
The process with the dashboard is then a rank itself. Other processes (`multiprocessing.Process`, workers of a `DataLoader`) run
as without gradtui.

`subprocess.Popen` is wrapped from the import of torch on: Lightning imports its launcher whenever it wants, and a finder in
`sys.meta_path` would be there for a script to see. Children of `mp.spawn` take the place of the process that started them,
whose own probe says nothing more. With Lightning's `ddp` it is a rank itself: its events stay those of the run, and count as
those of its rank.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gradtui.configuration.settings import Settings
from gradtui.launch.spawned_rank import SpawnedRank
from gradtui.runner.torch_import_hook import when_torch_is_imported
from gradtui.system.own_frames import hide, strip_own_frames
from gradtui.system.rank_environment import local_rank_in


class ChildRanks:
    """Lets the child processes of a script become ranks of its run.

    Args:
        settings: of the run.
        listen: returns where the viewer listens for ranks, and begins to do so; None if it cannot.
        include_own: called when this process becomes a rank itself.
    """

    def __init__(self, settings: Settings, listen: Callable[[], str | None], include_own: Callable[[], None]) -> None:
        self._settings, self._listen, self._include_own = settings, listen, include_own
        self._owner = os.getpid()
        self._starts = itertools.count()
        self._restore: list[Callable[[], None]] = []

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Watch for child processes meanwhile."""
        arrival = when_torch_is_imported(self._torch_imported)
        try:
            yield
        finally:
            if arrival is not None:
                arrival.forget()
            for restore in reversed(self._restore):
                restore()

    def _torch_imported(self) -> None:
        module = sys.modules.get("torch.multiprocessing.spawn")
        original = getattr(module, "start_processes", None)
        if original is not None:
            replacement = self._starting(original)
            for owner in (module, sys.modules.get("torch.multiprocessing")):
                self._replace(owner, "start_processes", original, replacement)
        begin = subprocess.Popen.__init__
        self._replace(subprocess.Popen, "__init__", begin, self._repeating(begin))

    def _replace(self, owner: Any, name: str, original: Any, replacement: Any) -> None:
        if getattr(owner, name, None) is not original:
            return
        setattr(owner, name, replacement)

        def restore() -> None:
            if getattr(owner, name, None) is replacement:
                setattr(owner, name, original)

        self._restore.append(restore)

    # torch.multiprocessing

    def _starting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return `start_processes` with children that are watched."""

        @functools.wraps(original)
        def start_processes(*arguments: Any, **named: Any) -> Any:
            arguments, named = self._with_ranks(original, arguments, named)
            try:
                return original(*arguments, **named)
            except BaseException as error:
                strip_own_frames(error)
                raise

        return hide(start_processes)

    def _with_ranks(
        self, original: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of `start_processes` with a function that is watched in the child."""
        unchanged = arguments, dict(named)
        if os.getpid() != self._owner:
            return unchanged
        try:
            bound = inspect.signature(original).bind(*arguments, **named)
            function, ranks = bound.arguments["fn"], bound.arguments.get("nprocs", 1)
            connect = self._listen() if callable(function) and type(ranks) is int and ranks > 0 else None
            if connect is None:
                return unchanged
            bound.arguments["fn"] = SpawnedRank(function, self._settings, connect, ranks, next(self._starts))
        except Exception:  # noqa: BLE001 - torch says what is wrong with the arguments
            return unchanged
        return bound.args, bound.kwargs

    # The script again, as Lightning starts it

    def _repeating(self, original: Callable[..., None]) -> Callable[..., None]:
        """Return `Popen.__init__` with gradtui in front of the script, where a process runs it as another rank."""

        @functools.wraps(original)
        def begin(process: Any, *arguments: Any, **named: Any) -> None:
            with contextlib.suppress(Exception):  # without gradtui the child runs all the same
                if arguments and (words := self._under_gradtui(arguments[0], named.get("env"))) is not None:
                    arguments = (words, *arguments[1:])
            try:
                original(process, *arguments, **named)
            except BaseException as error:
                strip_own_frames(error)
                raise

        return hide(begin)

    def _under_gradtui(self, words: Any, environ: Any) -> list[str] | None:
        """Return a command line with gradtui in front of the script; None if it does not run this script as another rank."""
        if os.getpid() != self._owner or not _repeats_script(words, environ):
            return None
        connect = self._listen()
        if connect is None:
            return None
        self._include_own()
        return [words[0], "-m", "gradtui", *self._settings.rank_options, f"--connect={connect}", *words[1:]]


def _repeats_script(words: Any, environ: Any) -> bool:
    """Return whether a command line runs the script of this process as another local rank, as Lightning's launcher does."""
    if not isinstance(words, (list, tuple)) or not isinstance(environ, Mapping) or words[0] != sys.executable:
        return False
    rank = local_rank_in(environ)
    if rank is None or rank == (local_rank_in(os.environ) or 0) or "WORLD_SIZE" not in environ:
        return False
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    script = ["-m", spec.name] if spec is not None else [os.path.abspath(sys.argv[0])]
    return list(words[1 : 1 + len(script)]) == script
