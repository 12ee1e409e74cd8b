"""The script's reads from the keyboard while the screen is up: each gets the terminal, as it would have it without a screen.

Three things read: python's own `sys.stdin`, `input()`, which uses the line editor of C if descriptors 0 and 1 are a terminal
(debuggers, `code.interact` and prompts of libraries call it), and `getpass.getpass`, which opens the terminal itself. gradtui
wraps them while the screen is up. Code that reads descriptor 0 past `sys.stdin` (`os.read`, C code, programs that the script
starts) and child processes get the end of the file.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import functools
import getpass
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from gradtui.runner.output_capture import OutputCapture
from gradtui.runner.standard_streams import watch_input
from gradtui.runner.terminal_loan import TerminalLoan

T = TypeVar("T")


class _Depth(threading.local):
    """Of the calling thread: how many reads are within each other. `input()` reads `sys.stdin` if stdout is the script's."""

    reads = 0
    has_nested = False


class _Reader:
    """What stands in the place of a function that reads. As a builtin function it becomes no method in a class."""

    def __init__(self, read: Callable[..., Any], before: Callable[..., Any]) -> None:
        self._read, self._before = read, before

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._read(self._before, *arguments, **named)


class ScriptInput:
    """Wraps what reads from the keyboard, from `start` to `stop`.

    Args:
        capture: has replaced descriptors 0 to 2, and is active.
        loan: asks the dashboard for the terminal.
        waits: called on the thread that reads, with True before it waits for the user and with False afterwards.
    """

    def __init__(
        self, capture: OutputCapture, loan: TerminalLoan, waits: Callable[[bool], None] = lambda _on: None
    ) -> None:
        self._capture, self._loan, self._waits = capture, loan, waits
        self._owner = os.getpid()
        self._depth = _Depth()
        self._wrapped: list[tuple[Any, str, Any, Any]] = []

    def start(self) -> None:
        """Wrap the readers. Main thread, before the script."""
        watch_input(self._read_stream)
        self._wrap(builtins, "input", self._input)
        self._wrap(getpass, "getpass", self._getpass)

    def stop(self) -> None:
        """Remove the wrappers, but for those that the script has replaced. One that the script kept reads as without a screen.
        Any thread."""
        while self._wrapped:
            owner, name, before, wrapper = self._wrapped.pop()
            if getattr(owner, name, None) is wrapper:
                setattr(owner, name, before)

    def _wrap(self, owner: Any, name: str, read: Callable[..., Any]) -> None:
        before = getattr(owner, name)
        wrapper = functools.update_wrapper(_Reader(read, before), before)
        setattr(owner, name, wrapper)
        self._wrapped.append((owner, name, before, wrapper))

    def _input(self, original: Callable[..., str], *prompt: object) -> str:
        if len(prompt) > 1 or not self._capture.stands_for_keyboard(_descriptor(sys.stdin)):
            return original(*prompt)
        shown = tuple(str(part) for part in prompt)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        return self._read(lambda: original(*shown), "".join(shown), lambda line: f"{line}\n")

    def _getpass(self, original: Callable[..., str], *arguments: Any, **named: Any) -> str:
        # Nothing of what is typed is kept. A prompt for a stream of the script's is in the log already.
        prompt = named.get("prompt", arguments[0] if arguments else "Password: ")
        is_elsewhere = (arguments[1] if len(arguments) > 1 else named.get("stream")) is not None
        return self._read(lambda: original(*arguments, **named), "" if is_elsewhere else str(prompt), lambda _: "\n")

    def _read_stream(self, read: Callable[[], bytes]) -> bytes:
        if not self._capture.stands_for_keyboard(0):
            return read()
        return self._read(read, "", lambda data: data.decode(errors="replace"))

    def _read(self, read: Callable[[], T], prompt: str, typed: Callable[[T], str]) -> T:
        """Return what `read` reads from the terminal.

        Args:
            prompt: what `read` shows on the terminal first.
            typed: turns the result into what the user typed.
        """
        here = self._depth
        if here.reads:
            here.has_nested = True
            self._loan.follow()
            return read()
        if os.getpid() != self._owner or not self._capture.active:
            return self._capture.read_nothing(read)
        if not self._loan.begin():
            return self._capture.read_nothing(read)
        shown = ""
        here.reads, here.has_nested = 1, False
        try:
            self._capture.lend_terminal()
            self._waits(True)
            _measure_terminal()
            result = read()
            shown = typed(result)
        finally:
            # A second Ctrl+C may interrupt any of these.
            try:
                self._waits(False)
            finally:
                here.reads = 0
                try:
                    self._capture.take_terminal_back()
                finally:
                    # A nested read is without the line editor: python has written the prompt to the log like any output.
                    self._loan.end(shown if here.has_nested else prompt + shown)
        return result


def _descriptor(stream: Any) -> int:
    """Return the descriptor of a stream; -1 if it has none."""
    try:
        return int(stream.fileno())
    except Exception:  # noqa: BLE001 (the script's own object)
        return -1


def _measure_terminal() -> None:
    """Let GNU readline learn the size of the terminal: it was loaded while the screen was up, and found none."""
    readline = sys.modules.get("readline")
    if readline is not None:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(getattr(readline, "__file__", None)).rl_reset_screen_size()
