"""Where gradtui finds modules is where they were found before the script, on its own thread only."""

from __future__ import annotations

import builtins
import importlib.util
import sys
import threading
from typing import Any
from unittest import mock

import pytest

from gradtui.system.own_module_search import OwnModuleSearch


class Refuses:
    """A finder of a script."""

    def __init__(self) -> None:
        self.asked = list[str]()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        self.asked.append(name)
        raise ImportError(f"{name} is refused")


def test_other_finders_are_not_asked_on_this_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    search, finder = OwnModuleSearch(), Refuses()
    monkeypatch.setattr(sys, "meta_path", [finder])
    with search.on_this_thread():
        assert importlib.util.find_spec("ftplib") is not None
        # torch asks so whether a package is installed.
        assert importlib.util.find_spec("no_such_package") is None
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("no_such_package")
    assert finder.asked == []
    assert sys.meta_path == [finder]
    with pytest.raises(ImportError, match="no_such_package is refused"):
        importlib.import_module("no_such_package")


def test_what_replaces_import_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        asked.append(name)
        raise ImportError

    search, left = OwnModuleSearch(), list[Any]()
    monkeypatch.delitem(sys.modules, "ftplib", raising=False)
    monkeypatch.setattr(sys, "path_hooks", [])
    sys.path_importer_cache.clear()
    # Until it is put back, nothing of pytest may import.
    with mock.patch.object(builtins, "__import__", refuse):
        for way in (search.on_this_thread, search.again):
            with way():
                import ftplib  # noqa: F401
            left.append((builtins.__import__, [*sys.path_hooks]))
    assert left == [(refuse, [])] * 2
    assert asked == []


def test_another_thread_finds_and_removes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    search, finder, other = OwnModuleSearch(), Refuses(), Refuses()
    monkeypatch.setattr(sys, "meta_path", [finder, other])

    def use() -> None:
        with pytest.raises(ImportError, match="ftplib_ is refused"):
            importlib.import_module("ftplib_")
        assert finder in sys.meta_path
        sys.meta_path.remove(finder)
        sys.meta_path.append(later)

    later = Refuses()
    with search.on_this_thread():
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
    assert finder.asked == ["ftplib_"]
    assert [*map(id, sys.meta_path)] == [id(other), id(later)]
