"""Child processes of the script that train: they run under gradtui, and report to the run that has started them.

`torch.multiprocessing.start_processes` starts those of `mp.spawn`, of Lightning's `ddp_spawn` and of accelerate's
`notebook_launcher`. Lightning's other launcher starts the script again, once for each further device; the process with the
dashboard is then a rank itself. Other processes (`multiprocessing.Process`, workers of a `DataLoader`) run as without gradtui.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gradtui.own_frames import hide, strip_own_frames
from gradtui.runner.torch_import_hook import ImportHook, when_torch_is_imported
from gradtui.settings import Settings
from gradtui.spawned_rank import SpawnedRank

_LIGHTNING = tuple(
    f"{package}.strategies.launchers.subprocess_script" for package in ("lightning.fabric", "lightning_fabric")
)
"""The modules in which Lightning makes the command lines of the processes that run the script again."""
_COMMANDS = ("_basic_subprocess_cmd", "_hydra_subprocess_cmd")
"""Their functions that return one, alone or in a tuple with the working directory."""
_ADDED = "--connect="


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
        lightning = ImportHook(_LIGHTNING, self._lightning_imported)
        self._restore.append(lightning.forget)

    def _lightning_imported(self, name: str) -> None:
        for command in _COMMANDS:
            original = getattr(sys.modules.get(name), command, None)
            if original is not None:
                self._replace(sys.modules[name], command, original, self._repeating(original))

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

    # Lightning

    def _repeating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that returns the command line of a process with gradtui in front of the script."""

        @functools.wraps(original)
        def command(*arguments: Any, **named: Any) -> Any:
            found = original(*arguments, **named)
            if os.getpid() != self._owner:
                return found
            with contextlib.suppress(Exception):  # without gradtui the child runs all the same
                if isinstance(found, tuple):
                    return (self._under_gradtui(found[0]), *found[1:])
                return self._under_gradtui(found)
            return found

        return hide(command)

    def _under_gradtui(self, words: Sequence[str]) -> Sequence[str]:
        connect = self._listen() if words[0] == sys.executable else None
        if connect is None:
            return words
        self._include_own()
        return [words[0], "-m", "gradtui", *self._settings.rank_options, f"{_ADDED}{connect}", *words[1:]]
