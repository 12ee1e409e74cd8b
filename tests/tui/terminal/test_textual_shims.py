"""What we lean on in Textual that is not public. These fail when a new Textual no longer has it, before anything else."""

from __future__ import annotations

import asyncio
import inspect
import os
import pty
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import textual.app
from textual.app import App
from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver

from gradtui.tui.terminal.driver import ThreadDriver, bound_driver
from gradtui.tui.terminal.textual_private import CrashReport, no_signal_handlers, script_keeps_stdio


def on_a_thread(work: Callable[[], Any]) -> Any:
    """Do `work` on another thread and hand on its result or error."""
    result: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            result.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    if errors:
        raise errors[0]
    return result[0]


class FakeTerminal:
    """A pseudo-terminal that nobody looks at."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def entered(self) -> None: ...
    def left(self) -> None: ...
    def stop_job(self) -> None: ...

    is_gone = False
    is_lost = False

    def is_orphaned(self) -> bool: ...
    def handle_hang_up(self) -> None: ...
    def restore(self) -> None: ...


@pytest.fixture
def terminal() -> Iterator[FakeTerminal]:
    master, slave = pty.openpty()
    yield FakeTerminal(slave)
    os.close(master)
    os.close(slave)


def make_driver(terminal: FakeTerminal) -> ThreadDriver:
    async def make() -> ThreadDriver:
        return bound_driver(terminal)(App())

    return asyncio.run(make())


def test_driver_sets_signal_handlers_through_its_module(terminal: FakeTerminal) -> None:
    """Why the shim is there: without it the driver cannot even be made off the main thread."""
    with pytest.raises(ValueError, match="main thread"):
        on_a_thread(lambda: make_driver(terminal))


def test_signal_shim(terminal: FakeTerminal) -> None:
    import signal

    before = {number: signal.getsignal(number) for number in (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)}
    with no_signal_handlers():
        driver = on_a_thread(lambda: make_driver(terminal))
        assert linux_driver.signal.SIGTSTP == signal.SIGTSTP
    assert isinstance(driver, ThreadDriver)
    assert linux_driver.signal is signal
    assert {number: signal.getsignal(number) for number in before} == before


def test_signal_shim_leaves_the_main_thread_alone() -> None:
    import signal

    before = signal.getsignal(signal.SIGUSR1)
    with no_signal_handlers():
        linux_driver.signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN
    signal.signal(signal.SIGUSR1, before)


class Watcher(App[None]):
    """Notes what sys.stdout is while it runs."""

    seen: Any = None

    def on_mount(self) -> None:
        self.seen = (sys.stdout, sys.stderr)
        self.exit()


def run_headless(app: App[Any]) -> App[Any]:
    on_a_thread(lambda: asyncio.run(app.run_async(headless=True, size=(80, 24))))
    return app


def test_app_replaces_stdio_without_the_shim() -> None:
    assert run_headless(Watcher()).seen[0] is not sys.stdout  # type: ignore[attr-defined]


def test_stdio_shim() -> None:
    names = ("redirect_stdout", "redirect_stderr")
    before = [getattr(textual.app, name) for name in names]
    app = Watcher()

    def run() -> None:
        with script_keeps_stdio():
            asyncio.run(app.run_async(headless=True, size=(80, 24)))

    on_a_thread(run)
    assert app.seen[0] is sys.stdout
    assert app.seen[1] is sys.stderr
    assert [getattr(textual.app, name) for name in names] == before


def test_stdio_shim_leaves_other_threads_alone() -> None:
    with script_keeps_stdio():
        assert run_headless(Watcher()).seen[0] is not sys.stdout  # type: ignore[attr-defined]


class Crashing(App[None]):
    def on_mount(self) -> None:
        raise LookupError("a bug in a panel")


def test_crash_shim(capfd: pytest.CaptureFixture[str]) -> None:
    app = Crashing()
    report = CrashReport(app)
    run_headless(app)
    text = report.text()
    assert text.splitlines()[-1] == "LookupError: a bug in a panel"
    assert "on_mount" in text
    assert capfd.readouterr().err == ""


def test_no_crash_no_report() -> None:
    app = Watcher()
    report = CrashReport(app)
    run_headless(app)
    assert report.text() is None


@pytest.mark.parametrize(
    "name",
    ["_get_terminal_size", "_enable_mouse_support", "_query_in_band_window_resize", "start_application_mode",
     "stop_application_mode", "disable_input", "close", "write", "suspend_application_mode", "resume_application_mode"],
)  # fmt: skip
def test_driver_has_what_is_overridden(name: str) -> None:
    assert callable(getattr(LinuxDriver, name))


def test_driver_attributes(terminal: FakeTerminal) -> None:
    with no_signal_handlers():
        driver = on_a_thread(lambda: make_driver(terminal))
    for name in ("fileno", "input_tty", "_file", "attrs_before", "exit_event", "_mouse", "_loop", "_app"):
        assert hasattr(driver, name)
    source = inspect.getsource(LinuxDriver.start_application_mode)
    assert "self._query_in_band_window_resize()" in source
    assert "WriterThread(self._file)" in source
    assert "self._get_terminal_size()" in source
