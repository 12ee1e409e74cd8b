"""What displays of the script would draw again and again on a terminal, while its output goes to a file. Any thread.

Such a display (a progress bar of Rich) draws nothing into a file until it ends. Its newest drawing is kept here, for the screen
alone: the file has what the script writes, and nothing else. Standard library only.
"""

from __future__ import annotations

from collections.abc import Hashable

MAX_TEXT = 64 * 1024
"""Characters of one drawing that are kept."""

_MAX = 8
"""Displays that are shown at the same time."""


class LiveDisplays:
    """The newest drawing of each display that is up. Threads of the script draw; the UI thread reads `drawings`."""

    def __init__(self) -> None:
        self.drawings: tuple[str, ...] = ()
        """The texts, with escape sequences for colours, in the order in which the displays appeared."""
        self._by_key: dict[Hashable, str] = {}

    def draw(self, key: Hashable, text: str) -> None:
        """Show this text as the newest drawing of a display."""
        if key in self._by_key or len(self._by_key) < _MAX:
            self._by_key[key] = text[:MAX_TEXT]
            self.drawings = tuple(self._by_key.copy().values())

    def end(self, key: Hashable) -> None:
        """Show a display no longer: what it writes at its end is in the file."""
        if self._by_key.pop(key, None) is not None:
            self.drawings = tuple(self._by_key.copy().values())
