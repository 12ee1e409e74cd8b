"""Import what a run needs late, wherever the script has let modules be found.

A script may change directory, empty `sys.path`, put a finder first that refuses, replace `__import__`, or lie beside a file
named like a module.
While it trains, gradtui imports nothing that it has not imported before.
"""

from __future__ import annotations

import builtins
import sys
from _thread import get_ident
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


class OwnModuleSearch:
    """How modules are found before the script runs."""

    def __init__(self) -> None:
        self._finders, self._path, self._hooks = [*sys.meta_path], [*sys.path], [*sys.path_hooks]
        self._import = builtins.__import__

    @contextmanager
    def again(self) -> Iterator[None]:
        """Find modules so within this context. Main thread, after the script."""
        of_script = sys.meta_path, sys.path, sys.path_hooks, builtins.__import__
        try:
            sys.meta_path, sys.path, sys.path_hooks = [*self._finders], [*self._path], [*self._hooks]
            builtins.__import__ = self._import
            yield
        finally:
            sys.meta_path, sys.path, sys.path_hooks, builtins.__import__ = of_script

    @contextmanager
    def on_this_thread(self) -> Iterator[None]:
        """Find modules so within this context, while other threads of the script find them where it lets them."""
        of_script, hooks, imports, thread = sys.meta_path, sys.path_hooks, builtins.__import__, get_ident()
        own = _OnOneThread(self._finders, self._path)
        # Another list: a thread that goes through the former one would miss a finder.
        within: list[Any] = [own, *map(_OnOtherThreads, of_script)]

        def import_here(*args: Any, **kwargs: Any) -> Any:
            return (self._import if get_ident() == thread else imports)(*args, **kwargs)

        try:
            sys.meta_path = within
            if [*hooks] != self._hooks:
                sys.path_hooks = [*self._hooks]
            if imports is not self._import:
                builtins.__import__ = import_here
            yield
        finally:
            if builtins.__import__ is import_here:
                builtins.__import__ = imports
            sys.path_hooks = hooks
            left = (each for each in within if each is not own)
            of_script[:] = [each.finder if isinstance(each, _OnOtherThreads) else each for each in left]
            if sys.meta_path is within:
                sys.meta_path = of_script


class _OnOneThread:
    """Finds modules with these finders, and on this path, on the thread that has made it."""

    def __init__(self, finders: Sequence[Any], path: Sequence[str]) -> None:
        self._finders, self._path, self._thread = finders, path, get_ident()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if get_ident() != self._thread:
            return None
        for finder in self._finders:
            where = self._path if path is None and finder is PathFinder else path
            spec: ModuleSpec | None = finder.find_spec(fullname, where, target)
            if spec is not None:
                return spec
        return None


class _OnOtherThreads:
    """A finder of the script, which is not asked on the thread that has made this. Other threads may find and remove it."""

    def __init__(self, finder: Any) -> None:
        self.finder, self._thread = finder, get_ident()

    def __eq__(self, other: object) -> bool:
        return self is other or bool(self.finder == other)

    def __hash__(self) -> int:
        return hash(self.finder)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        find = getattr(self.finder, "find_spec", None)
        spec: ModuleSpec | None = find(fullname, path, target) if find and get_ident() != self._thread else None
        return spec
