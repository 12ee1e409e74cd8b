"""Holds a large freeze or unfreeze back until it is requested again for the same row. UI thread."""

from __future__ import annotations

from time import monotonic

from textual.screen import Screen

from gradtui.run.state.run_state import RunState
from gradtui.tui.actions import keymap_of
from gradtui.tui.panels import WhyPanel
from gradtui.tui.requests.confirmation import SECONDS, Confirmation, confirmation_for


class SecondPress:
    """What waits to be confirmed; the panel `why` shows it.

    Args:
        screen: the dashboard.
        state: the run.
        why: the panel.
    """

    def __init__(self, screen: Screen[None], state: RunState, why: WhyPanel) -> None:
        self._screen, self._state, self._why = screen, state, why
        self._awaited: Confirmation | None = None
        self._before_key: Confirmation | None = None
        """What waited when the key that is now handled was pressed."""

    def holds_back(self, request: str, row: int | None) -> bool:
        """Return whether a request has to wait for a second press, and show what it would change."""
        asked = confirmation_for(self._state, request, row, self._before_key or self._awaited, monotonic())
        self._before_key = None
        self._set(asked)
        if asked is None:
            return False
        self._screen.set_timer(SECONDS, lambda: self._expire(asked))
        if not self._why.is_on_screen:
            self._screen.notify(self._why.paragraph, timeout=SECONDS)
        return True

    def key_pressed(self) -> None:
        """Forget what waits, unless the action of this key, or of this mouse button, asks for it."""
        self._before_key = self._awaited
        # What has no key is chosen again with keys, in the command palette.
        if self._awaited is not None and keymap_of(self._screen.app).action(self._awaited.request).keys:
            self._set(None)

    def cancel(self) -> None:
        """Forget what waits."""
        self._before_key = None
        self._set(None)

    def _expire(self, asked: Confirmation) -> None:
        if self._awaited is asked:
            self.cancel()

    def _set(self, asked: Confirmation | None) -> None:
        if asked is not self._awaited:
            self._awaited = asked
            self._why.ask(asked)
