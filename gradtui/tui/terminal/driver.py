"""A Textual driver for an app that does not own the main thread, nor fds 0 to 2, nor any signal.

UI thread, but for the input and writer threads that Textual's driver starts. Everything private that this class leans on
is a method or attribute of `LinuxDriver`, and `tests/tui/test_driver.py` fails where one of them changes.

- Keys come from and drawing goes to a descriptor of the terminal of its own.
- A resize is noticed by asking the terminal four times a second: a signal handler would wait for the main thread, which
  may be in one torch operation for seconds.
- Ctrl+Z stops the whole job. Continued or started in the background, the screen stays closed until the job is in front.
- A terminal that hung up, or that a dead supervisor left to us, ends the app and not the script.
- A screen that somebody else closed (`kill -STOP`, after which the supervisor repairs the terminal) is opened again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import termios
import threading
from typing import Any, ClassVar, Protocol

from textual import events
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Size

from gradtui.tui.terminal.terminal_writer import TerminalWriter

RESIZE_INTERVAL = 0.25
"""Seconds between two looks at the terminal."""


class Terminal(Protocol):
    """The terminal that the driver draws on, and who is told when it comes and goes."""

    descriptor: int

    def entered(self) -> None:
        """Called before the terminal's mode changes."""

    def left(self) -> None:
        """Called when it is as it was."""

    @property
    def is_gone(self) -> bool:
        """Whether its other end is gone."""

    def heed_hang_up(self) -> None:
        """Ends the process if somebody sent a SIGHUP on purpose."""

    @property
    def is_lost(self) -> bool:
        """Whether the script has closed our descriptor of it; `restore` opens another."""

    def is_orphaned(self) -> bool:
        """Whether nobody is left who would repair it after us."""

    def stop_job(self) -> None:
        """Stops the whole job, the calling thread first; returns when it is continued."""

    def restore(self) -> None:
        """Puts it back by force."""


class ThreadDriver(LinuxDriver):
    """Textual's Linux and macOS driver, at home on any thread. Use it through `bound_driver`."""

    terminal: ClassVar[Terminal]
    current: ClassVar[ThreadDriver | None] = None
    """The driver that a running app has made of this class."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self.fileno = self.terminal.descriptor
        self.input_tty = True
        self._file = TerminalWriter(self.terminal.descriptor)  # type: ignore[assignment]  # as much of a file as the driver uses
        self._drawing = False
        self._last_size = self._get_terminal_size()
        self._look: asyncio.TimerHandle | None = None
        type(self).current = self

    @property
    def holds_terminal(self) -> bool:
        """Whether the terminal is in application mode because of us."""
        return self._drawing

    @property
    def waits_in_background(self) -> bool:
        """Whether the screen is closed because another job has the terminal."""
        return not self._drawing and not in_foreground(self.fileno)

    def write(self, data: str) -> None:
        """Draw, unless the terminal is not ours at the moment: then there is nothing to draw on."""
        if self._drawing:
            super().write(data)

    def start_application_mode(self) -> None:
        """Take the terminal, or wait until the job is in front: until then the terminal belongs to another."""
        if not in_foreground(self.fileno):
            self._look_again()
            return
        self.terminal.entered()
        self._drawing = True
        self._last_size = self._get_terminal_size()
        super().start_application_mode()  # type: ignore[no-untyped-call]  # not annotated in textual
        self._look_again()

    def stop_application_mode(self) -> None:
        """Leave the terminal as it was found, but keep off line settings that a shell has made its own meanwhile."""
        if not in_foreground(self.fileno) and _local_modes(self.fileno) & termios.ISIG:
            self.attrs_before = None
        super().stop_application_mode()

    def close(self) -> None:
        """Write out what is waiting, and say that the terminal is free. Follows `stop_application_mode`.

        Where nothing could be written, the terminal is left to be restored by force.
        """
        super().close()
        if self._drawing and not self.terminal.is_lost:
            self._drawing = False
            self.terminal.left()

    def suspend_process(self) -> None:
        """Close the screen and stop the whole job, as Ctrl+Z does to any program. UI thread.

        Returns when the job is continued; in the background the screen stays closed until the job is in front.
        """
        self._close_screen()
        self.terminal.stop_job()
        if in_foreground(self.fileno):
            self._open_screen()
        else:
            self._look_again()

    def _close_screen(self) -> None:
        self._app.app_suspend_signal.publish(self._app)
        self.suspend_application_mode()

    def _abandon_screen(self) -> None:
        """Take note that somebody else closed the screen, and leave the terminal as it is now."""
        self._drawing = False
        self.attrs_before = None
        self._close_screen()
        self.terminal.left()

    def _open_screen(self) -> None:
        self.resume_application_mode()
        self._app.app_resume_signal.publish(self._app)
        self._app.refresh(layout=True)

    def _look_again(self) -> None:
        if self._look is not None:
            self._look.cancel()
        self._look = self._loop.call_later(RESIZE_INTERVAL, self._look_at_terminal)

    def _look_at_terminal(self) -> None:
        """Notice a new size, a terminal that hung up, and a screen that somebody else closed."""
        self._look_again()
        self.terminal.heed_hang_up()
        if self.terminal.is_lost or self.terminal.is_gone or self.terminal.is_orphaned():
            self.exit_event.set()  # the input thread would spin on a dead terminal, or take keys from a shell
            self._app.exit()
            return
        if self._drawing and _local_modes(self.fileno) & termios.ICANON:
            self._abandon_screen()
            self._look_again()
        if not self._drawing:
            if in_foreground(self.fileno):
                self._open_screen()
            return
        size = self._get_terminal_size()
        if size != self._last_size:
            self._last_size = size
            self._app.post_message(events.Resize(Size(*size), Size(*size)))

    def disable_input(self) -> None:
        """Stop looking at the terminal and reading keys."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
        if self._drawing or (self._key_thread is not None and self._key_thread.is_alive()):
            # It drops what was typed: in the background that is meant for another job.
            super().disable_input()

    def _get_terminal_size(self) -> tuple[int, int]:
        return terminal_size(self.fileno)

    def _enable_mouse_support(self) -> None:
        """Ask for clicks and the wheel only: reports of every motion cost a quarter of a core while the mouse moves."""
        if self._mouse:
            self.write("\x1b[?1000h\x1b[?1006h")

    def _query_in_band_window_resize(self) -> None:
        """Not asked for: a terminal that has it would also switch the mouse to pixels, and looking is enough."""


def bound_driver(terminal: Terminal) -> type[ThreadDriver]:
    """Make the driver class for one terminal, to be passed as an app's `driver_class`."""
    return type("BoundThreadDriver", (ThreadDriver,), {"terminal": terminal, "current": None})


def suspend_process(app: App[Any]) -> None:
    """What Ctrl+Z should do: close the screen and stop the whole job. UI thread. No other driver knows it."""
    driver = getattr(app.driver_class, "current", None)
    if isinstance(driver, ThreadDriver):
        driver.suspend_process()


def is_in_background(app: App[Any]) -> bool:
    """Whether the app shows nothing because another job has the terminal. UI thread."""
    driver = getattr(app.driver_class, "current", None)
    return isinstance(driver, ThreadDriver) and driver.waits_in_background


def interrupt_script() -> None:
    """What Ctrl+C should do: send SIGINT to the main thread, where the script gets its KeyboardInterrupt.

    The terminal sends no signal itself while the screen is up. Unlike an exception set from another thread, a signal
    also wakes the main thread from a blocking call.
    """
    main = threading.main_thread().ident
    if main is not None:
        signal.pthread_kill(main, signal.SIGINT)


def terminal_size(descriptor: int) -> tuple[int, int]:
    """Columns and rows of the terminal; 80 by 24 where it will not say."""
    try:
        size = os.get_terminal_size(descriptor)
    except OSError:
        return 80, 24
    return size.columns or 80, size.lines or 24


def in_foreground(descriptor: int) -> bool:
    """Whether our process group is the one that the terminal belongs to now."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return True


def _local_modes(descriptor: int) -> int:
    """The terminal's local modes (`c_lflag`); none where it will not say."""
    with contextlib.suppress(termios.error):
        return int(termios.tcgetattr(descriptor)[3])
    return 0
