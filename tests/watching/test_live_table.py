"""When the table of a notebook is published, with an IPython that records it. `test_notebook.py` has a kernel."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gradtui.watching import notebook
from gradtui.watching.notebook import LiveTable


class Shell:
    """An IPython with a kernel, which records what is published."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, has_kernel: bool = True) -> None:
        self.kernel = object() if has_kernel else None
        self.events = self
        self.after_cell: list[Callable[[object], None]] = []
        self.published: list[tuple[str, bool, str]] = []
        package, display = ModuleType("IPython"), ModuleType("IPython.display")
        package.get_ipython = lambda: self  # type: ignore[attr-defined]
        display.publish_display_data = self.publish  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", package)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def register(self, event: str, callback: Callable[[object], None]) -> None:
        assert event == "post_run_cell"
        self.after_cell.append(callback)

    def unregister(self, event: str, callback: Callable[[object], None]) -> None:
        self.after_cell.remove(callback)

    def publish(self, data: dict[str, str], *, transient: dict[str, Any], update: bool) -> None:
        self.published.append((data["text/html"], update, transient["display_id"]))

    def end_cell(self) -> None:
        for callback in self.after_cell:
            callback(SimpleNamespace())


def live_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "gradtui-notebook"]


def no_live_thread() -> None:
    for thread in live_threads():
        thread.join(60)
    assert live_threads() == []


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread publishes nothing within the test."""
    monkeypatch.setattr(notebook, "_PERIOD_S", 1_000.0)


@pytest.mark.usefixtures("slow")
def test_display_updates_after_cell_and_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shell, html, newest = Shell(monkeypatch), ["one"], ["one"]
    table = LiveTable(lambda: {"text/html": html[0]}, lambda: html.__setitem__(0, newest[0]))
    table.display(live=True)
    shell.end_cell()
    assert [entry[:2] for entry in shell.published] == [("one", False)]
    newest[0] = "two"
    shell.end_cell()
    shell.end_cell()
    assert [entry[:2] for entry in shell.published[1:]] == [("two", True)]
    html[0] = "three"
    table.close()
    assert [entry[:2] for entry in shell.published[2:]] == [("three", True)]
    assert len({entry[2] for entry in shell.published}) == 1, "one display"
    assert shell.after_cell == []
    no_live_thread()


def test_the_thread_publishes_changes_while_a_cell_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "_PERIOD_S", 0.01)
    shell, count = Shell(monkeypatch), iter(range(1_000_000))
    table = LiveTable(lambda: {"text/html": str(next(count))}, lambda: None)
    table.display(live=True)
    deadline = time.monotonic() + 20
    while len(shell.published) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    table.close()
    no_live_thread()
    # Consecutive, since nothing draws it in between.
    assert [int(entry[0]) for entry in shell.published] == list(range(len(shell.published)))
    assert len(shell.published) >= 5


@pytest.mark.usefixtures("slow")
def test_second_display_shares_table_and_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell(monkeypatch)
    table = LiveTable(lambda: {"text/html": "same"}, lambda: None)
    table.display(live=True)
    table.display(live=True)
    assert [entry[:2] for entry in shell.published] == [("same", False)] * 2
    assert len({entry[2] for entry in shell.published}) == 1
    assert len(live_threads()) == len(shell.after_cell) == 1
    table.close()
    no_live_thread()


def test_terminal_and_closed_watch_get_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for has_kernel, live in ((False, True), (True, False)):
        shell = Shell(monkeypatch, has_kernel=has_kernel)
        table = LiveTable(lambda: {"text/html": "once"}, lambda: None)
        table.display(live=live)
        table.close()
        assert [entry[:2] for entry in shell.published] == [("once", False)]
        assert shell.after_cell == []
    assert live_threads() == []


@pytest.mark.usefixtures("slow")
def test_unpublishing_kernel_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    shell, html = Shell(monkeypatch), ["one"]
    table = LiveTable(lambda: {"text/html": html[0]}, lambda: None)
    table.display(live=True)
    sys.modules["IPython.display"].publish_display_data = lambda *_, **__: 1 / 0  # type: ignore[attr-defined]
    html[0] = "two"
    shell.end_cell()
    table.close()
    assert len(shell.published) == 1
    no_live_thread()
