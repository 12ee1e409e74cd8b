"""A Textual driver for an app that does not own the main thread, nor fds 0 to 2, nor any signal.

UI thread, except for the input and writer threads that Textual's driver starts. Everything private that this class relies on
is a method or attribute of `LinuxDriver`, and `tests/tui/terminal/test_textual_shims.py` fails if one of them changes.

- The driver reads keys from, and draws to, its own descriptor of the terminal.
- The driver polls the terminal size four times a second: a signal handler would wait for the main thread, which may be in one
  torch operation for seconds.
- Ctrl+Z stops the whole job. Continued or started in the background, the screen stays closed until the job is in the
  foreground.
- If the terminal hangs up, or a dead supervisor leaves it to this process, the app ends but the script does not.
- If another process closed the screen (`kill -STOP`, after which the supervisor repairs the terminal), it is opened again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import termios
import threading
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Size

from gradtui.system.own_memory import OWN

if TYPE_CHECKING:
    from gradtui.runner.terminal import ControllingTerminal

RESIZE_INTERVAL = 0.25
"""Seconds between two polls of the terminal."""


class TerminalWriter:
    """The part of a text file's interface that Textual's writer thread needs.

    Writes to a terminal that is gone are discarded silently: an error would end the writer thread, and its full queue would
    then block the UI thread for good.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, text: str) -> int:
        """Write all of `text`, waiting if the terminal is slow."""
        OWN.enrol()
        data = memoryview(text.encode("utf-8", errors="replace"))
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # another process that shares the terminal made it non-blocking
                select.select([], [self._descriptor], [], 1.0)
            except OSError:
                break
        return len(text)

    def flush(self) -> None:
        """Do nothing: no output is buffered."""

    def fileno(self) -> int:
        """Return the terminal's descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Return True, because the descriptor is a terminal's."""
        return True


class ThreadDriver(LinuxDriver):
    """Textual's driver for Linux and macOS, usable on any thread. Use it through `bound_driver`."""

    terminal: ClassVar[ControllingTerminal]
    current: ClassVar[ThreadDriver | None] = None
    """The instance of this class that a running app uses."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self.fileno = self.terminal.descriptor
        self.input_tty = True
        self._file = TerminalWriter(self.terminal.descriptor)  # type: ignore[assignment]  # as much of a file as the driver uses
        self.holds_terminal = False
        """Whether this driver has put the terminal into application mode."""
        self._last_size = self._get_terminal_size()
        self._look: asyncio.TimerHandle | None = None
        self._was_lent = False
        type(self).current = self

    @property
    def waits_in_background(self) -> bool:
        """Whether the screen is closed because another job has the terminal."""
        return not self.holds_terminal and not in_foreground(self.fileno)

    def write(self, data: str) -> None:
        """Draw while this driver holds the terminal; otherwise there is nothing to draw on."""
        if self.holds_terminal:
            super().write(data)

    def start_application_mode(self) -> None:
        """Enter application mode, or wait until the job is in the foreground: until then another job has the terminal."""
        if not in_foreground(self.fileno):
            self._look_again()
            return
        self.terminal.entered()
        self.holds_terminal = True
        self._last_size = self._get_terminal_size()
        super().start_application_mode()  # type: ignore[no-untyped-call]  # not annotated in textual
        self._look_again()

    def stop_application_mode(self) -> None:
        """Restore the terminal settings, but keep those that a shell has set in the meantime."""
        if not in_foreground(self.fileno) and _local_modes(self.fileno) & termios.ISIG:
            self.attrs_before = None
        super().stop_application_mode()

    def close(self) -> None:
        """Write the pending output and report that the terminal is free. Follows `stop_application_mode`.

        If nothing could be written, the terminal is left to be restored by force.
        """
        super().close()
        if self.holds_terminal and not self.terminal.is_lost:
            self.holds_terminal = False
            self.terminal.left()

    def suspend_process(self) -> None:
        """Close the screen and stop the whole job, as Ctrl+Z does to any program. UI thread.

        Returns when the job is continued. In the background the screen stays closed until the job is in the foreground.
        """
        self._close_screen()
        self.terminal.stop_job()
        if in_foreground(self.fileno):
            self._open_screen()
        else:
            self._look_again()

    def give_terminal(self) -> None:
        """Close the screen until the terminal is no longer lent: the script is about to read from the keyboard. UI thread."""
        self._was_lent = True
        if self.holds_terminal:
            self._close_screen()
            self._look_again()

    def _close_screen(self) -> None:
        self._app.app_suspend_signal.publish(self._app)
        self.suspend_application_mode()

    def _abandon_screen(self) -> None:
        """Record that another process closed the screen, and leave the terminal as it is now."""
        self.holds_terminal = False
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
        """Check for a new size, a terminal that hung up, and a screen that another process closed."""
        self._look_again()
        self.terminal.handle_hang_up()
        if self.terminal.is_lost or self.terminal.is_gone or self.terminal.is_orphaned():
            self.exit_event.set()  # the input thread would spin on a dead terminal, or take keys from a shell
            self._app.exit()
            return
        if self.terminal.is_lent():
            return
        if self.holds_terminal and _local_modes(self.fileno) & termios.ICANON:
            self._abandon_screen()
            self._look_again()
        if not self.holds_terminal:
            if in_foreground(self.fileno):
                if self._was_lent:
                    # What was typed ahead was meant for the script.
                    with contextlib.suppress(termios.error):
                        termios.tcflush(self.fileno, termios.TCIFLUSH)
                self._was_lent = False
                self._open_screen()
            return
        size = self._get_terminal_size()
        if size != self._last_size:
            self._last_size = size
            self._app.post_message(events.Resize(Size(*size), Size(*size)))

    def disable_input(self) -> None:
        """Stop polling the terminal and reading keys."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
        if self.holds_terminal or (self._key_thread is not None and self._key_thread.is_alive()):
            # The base method discards pending input: in the background that input is meant for another job.
            super().disable_input()

    def _get_terminal_size(self) -> tuple[int, int]:
        return terminal_size(self.fileno)

    def _enable_mouse_support(self) -> None:
        """Enable reports of clicks and wheel only: reports of every motion cost a quarter of a core while the mouse moves."""
        if self._mouse:
            self.write("\x1b[?1000h\x1b[?1006h")

    def _query_in_band_window_resize(self) -> None:
        """Do nothing: a terminal that supports it would also switch the mouse to pixels, and polling the size is enough."""


def bound_driver(terminal: ControllingTerminal) -> type[ThreadDriver]:
    """Make the driver class for one terminal, to be passed as an app's `driver_class`."""
    return type("BoundThreadDriver", (ThreadDriver,), {"terminal": terminal, "current": None})


def suspend_process(app: App[Any]) -> None:
    """Close the screen and stop the whole job, as Ctrl+Z should. No effect with another driver. UI thread."""
    driver = getattr(app.driver_class, "current", None)
    if isinstance(driver, ThreadDriver):
        driver.suspend_process()


def give_terminal(app: App[Any]) -> bool:
    """Close the screen until the terminal is no longer lent. Returns whether the app has a terminal to lend. UI thread."""
    driver = getattr(app.driver_class, "current", None)
    if isinstance(driver, ThreadDriver):
        driver.give_terminal()
        return True
    return False


def is_shown(app: App[Any]) -> bool:
    """Whether what the app draws is shown; False while the script or another job has the terminal. UI thread."""
    driver = getattr(app.driver_class, "current", None)
    return not isinstance(driver, ThreadDriver) or driver.holds_terminal


def is_in_background(app: App[Any]) -> bool:
    """Whether the app shows nothing because another job has the terminal. UI thread."""
    driver = getattr(app.driver_class, "current", None)
    return isinstance(driver, ThreadDriver) and driver.waits_in_background


def interrupt_script() -> None:
    """Send SIGINT to the main thread, as Ctrl+C should; the script gets its KeyboardInterrupt there.

    The terminal sends no signal itself while the screen is up. Unlike an exception set from another thread, a signal also wakes
    the main thread from a blocking call.
    """
    main = threading.main_thread().ident
    if main is not None:
        signal.pthread_kill(main, signal.SIGINT)


def terminal_size(descriptor: int) -> tuple[int, int]:
    """Return columns and rows of the terminal; 80 by 24 if they are unknown."""
    try:
        size = os.get_terminal_size(descriptor)
    except OSError:
        return 80, 24
    return size.columns or 80, size.lines or 24


def in_foreground(descriptor: int) -> bool:
    """Whether this process group is the foreground process group of the terminal; True if unknown."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return True


def _local_modes(descriptor: int) -> int:
    with contextlib.suppress(termios.error):
        return int(termios.tcgetattr(descriptor)[3])
    return 0
