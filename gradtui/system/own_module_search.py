"""Import what a run needs late, wherever the script has let modules be found.

A script may change directory, empty `sys.path`, put a finder first that refuses, or lie beside a file named like a module.
While it trains, gradtui imports nothing that it has not imported before.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


class OwnModuleSearch:
    """Where modules are found before the script runs."""

    def __init__(self) -> None:
        self._finders, self._path = [*sys.meta_path], [*sys.path]

    @contextmanager
    def again(self) -> Iterator[None]:
        """Find modules there within this context. Main thread, after the script."""
        of_script = sys.meta_path, sys.path
        try:
            sys.meta_path, sys.path = [*self._finders], [*self._path]
            yield
        finally:
            sys.meta_path, sys.path = of_script

    @contextmanager
    def on_this_thread(self) -> Iterator[None]:
        """Find modules there within this context, while other threads of the script find them where it lets them."""
        of_script = sys.meta_path
        own = _OnOneThread(self._finders, self._path)
        # Another list: a thread that goes through the former one would miss a finder.
        sys.meta_path = within = [own, *of_script]
        try:
            yield
        finally:
            of_script[:] = [each for each in within if each is not own]
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
        # The finders of the script are not asked.
        raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
