"""The life of the screen's thread, on a pseudo-terminal of this process: start, readiness, crash, hang, end."""

from __future__ import annotations

import contextlib
import os
import pty
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from textual.app import App

from gradtui.tui.terminal.ui_thread import UiThread

PATIENCE = 20.0


class NotedTerminal:
    """A pseudo-terminal that is read from all the time, and a note of what it was told."""

    def __init__(self) -> None:
        self._master, self.descriptor = pty.openpty()
        self.told: list[str] = []
        self.drawn = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self._master, 65536):
                self.drawn += data

    def entered(self) -> None:
        self.told.append("entered")

    def left(self) -> None:
        self.told.append("left")

    def restore(self) -> None:
        self.told.append("restore")

    is_gone = False
    is_lost = False

    def is_orphaned(self) -> bool:
        return False

    def handle_hang_up(self) -> None:
        """Nobody sends one."""

    def stop_job(self) -> None:
        self.told.append("stop")

    def close(self) -> None:
        os.close(self.descriptor)
        self._reader.join(PATIENCE)
        os.close(self._master)


@pytest.fixture
def terminal() -> Iterator[NotedTerminal]:
    noted = NotedTerminal()
    yield noted
    noted.close()


class Idle(App[None]):
    """Does nothing."""


def test_start_ready_stop(terminal: NotedTerminal) -> None:
    ended: list[str] = []
    ui = UiThread(Idle, terminal, on_end=lambda thread: ended.append(f"{thread.crash} {terminal.told}"))
    assert not ui.is_alive
    ui.start()
    assert ui.wait_ready(PATIENCE)
    assert ui.is_alive
    assert isinstance(ui.app, Idle)
    assert terminal.told == ["entered"]
    assert b"\x1b[?1049h" in terminal.drawn
    assert ui.stop()
    assert not ui.is_alive
    assert ui.crash is None
    assert terminal.told == ["entered", "left"]
    assert ended == ["None ['entered', 'left']"]
    assert ui.stop()
    assert ended == ["None ['entered', 'left']"]


def test_question_is_answered_on_app_s_thread(terminal: NotedTerminal) -> None:
    ui = UiThread(Idle, terminal)
    assert ui.ask(lambda app: app, 1.0) is None
    ui.start()
    assert ui.wait_ready(PATIENCE)
    assert ui.ask(lambda app: (app, threading.current_thread().name), PATIENCE) == (ui.app, "gradtui-ui")
    with pytest.raises(ZeroDivisionError):
        ui.ask(lambda _app: 1 / 0, PATIENCE)
    go_on = threading.Event()
    assert ui.ask(lambda _app: go_on.wait(PATIENCE), 0.01) is None
    go_on.set()
    assert ui.stop()
    assert ui.ask(lambda app: app, 1.0) is None


def test_app_that_leaves_by_itself(terminal: NotedTerminal) -> None:
    class Leaving(App[None]):
        def on_mount(self) -> None:
            self.set_timer(0.01, self.exit)

    ui = UiThread(Leaving, terminal)
    ui.start()
    assert ui.join(PATIENCE)
    assert ui.crash is None
    assert not ui.wait_ready(0)
    assert terminal.told == ["entered", "left"]


def test_factory_that_fails(terminal: NotedTerminal) -> None:
    def broken() -> App[Any]:
        raise ImportError("no such widget")

    ended = threading.Event()
    ui = UiThread(broken, terminal, on_end=lambda thread: ended.set())
    ui.start()
    assert ui.wait_ready(PATIENCE) is False
    assert ui.join(PATIENCE)
    assert ended.is_set()
    assert ui.crash.splitlines()[-1] == "ImportError: no such widget"
    assert terminal.told == []


class CrashingOnMount(App[None]):
    def on_mount(self) -> None:
        raise LookupError("at the start")


class CrashingLater(App[None]):
    def on_mount(self) -> None:
        self.set_timer(0.05, self.fail)

    def fail(self) -> None:
        raise LookupError("later")


class Exiting(App[None]):
    def on_mount(self) -> None:
        self.set_timer(0.05, lambda: exec("raise SystemExit('out of the loop')"))


@pytest.mark.parametrize(
    ("app", "last"),
    [
        (CrashingOnMount, "LookupError: at the start"),
        (CrashingLater, "LookupError: later"),
        (Exiting, "SystemExit: out of the loop"),
    ],
)
def test_crash_is_kept_and_the_terminal_given_back(
    app: type[App[Any]], last: str, terminal: NotedTerminal, capfd: pytest.CaptureFixture[str]
) -> None:
    ui = UiThread(app, terminal)
    ui.start()
    assert ui.join(PATIENCE)
    assert ui.crash.splitlines()[-1] == last
    assert terminal.told[0] == "entered"
    assert terminal.told[-1] == "left"
    assert capfd.readouterr() == ("", "")


def test_app_that_hangs_is_closed_by_force(terminal: NotedTerminal) -> None:
    release, hanging = threading.Event(), threading.Event()

    class Hanging(App[None]):
        def on_mount(self) -> None:
            self.set_timer(0.01, self.hang)

        def hang(self) -> None:
            hanging.set()
            release.wait(PATIENCE)

    ui = UiThread(Hanging, terminal)
    ui.start()
    assert hanging.wait(PATIENCE)
    assert ui.stop(timeout=0.2) is False
    assert terminal.told == ["entered", "restore", "left"]
    release.set()
    assert ui.join(PATIENCE)


def test_stop_before_start_and_from_its_own_thread(terminal: NotedTerminal) -> None:
    answers: list[bool] = []
    ui = UiThread(Idle, terminal, on_end=lambda thread: answers.append(thread.stop()))
    assert ui.stop() is True
    ui.start()
    assert ui.stop(PATIENCE) is True  # before it is ready
    assert answers == [True]


def test_error_in_on_end_stays_inside(terminal: NotedTerminal) -> None:
    def fail(thread: UiThread) -> None:
        raise RuntimeError("in on_end")

    ui = UiThread(Idle, terminal, on_end=fail)
    ui.start()
    assert ui.wait_ready(PATIENCE)
    assert ui.stop() is True


def test_nothing_is_left_on_the_thread_list(terminal: NotedTerminal) -> None:
    before = set(threading.enumerate())
    ui = UiThread(Idle, terminal)
    ui.start()
    assert ui.wait_ready(PATIENCE)
    assert all(thread.daemon for thread in set(threading.enumerate()) - before)
    ui.stop()
    assert set(threading.enumerate()) == before
