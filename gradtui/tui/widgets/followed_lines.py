"""Lines of text that follow their end until the user scrolls away from it. UI thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import events

from gradtui.tui.widgets.line_view import ScrollLines


class FollowedLines(ScrollLines):
    """Follows the last line. Scrolling up stops following; scrolling back to the end resumes it."""

    _MOVES: ClassVar[dict[str, Callable[[FollowedLines], int]]] = {
        "up": lambda view: view.top - 1,
        "k": lambda view: view.top - 1,
        "down": lambda view: view.top + 1,
        "j": lambda view: view.top + 1,
        "pageup": lambda view: view.top - max(1, view.content_size.height - 1),
        "pagedown": lambda view: view.top + max(1, view.content_size.height - 1),
        "home": lambda _: 0,
        "end": lambda view: view.line_count(view.content_size.width - 1),
    }

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.follows = True

    def on_key(self, event: events.Key) -> None:
        """Scroll by the usual keys. These are not actions, because they have no meaning elsewhere."""
        move = self._MOVES.get(event.key)
        if move is not None:
            event.stop()
            event.prevent_default()
            self.scroll_top_to(move(self))

    def scrolled(self, *, at_end: bool) -> None:
        self.follows = at_end
