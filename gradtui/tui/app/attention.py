"""Rings the terminal's bell and runs the `--notify` command while the user is away. UI thread."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from textual import events
from textual.app import App

from gradtui.protocol.events import Event
from gradtui.run.state.run_state import RunState
from gradtui.run.text.notices import Notice, notice_of, notice_text
from gradtui.tui.terminal import ring

IDLE_S = 60.0
"""Seconds without a key after which the user is taken to be away."""


class Attention:
    """Rings the bell if the terminal has no focus, and runs the user's command if the user is away."""

    def __init__(
        self,
        app: App[str],
        state: RunState,
        notify: Callable[[RunState, Notice], None] | None,
        *,
        rings: bool,
    ) -> None:
        """Ring the bell, if it `rings`, and call `notify` for the notices of the run with this state."""
        self._app, self._state, self._rings, self._notify = app, state, rings, notify
        self._has_focus: bool | None = None
        """Whether the terminal has the focus; None until it has said so."""
        self._touched = monotonic()

    def saw(self, event: events.Event) -> None:
        """Follow the focus and the keys."""
        if isinstance(event, (events.AppFocus, events.AppBlur)):
            self._has_focus = isinstance(event, events.AppFocus)
        elif isinstance(event, (events.Key, events.MouseEvent)):
            self._touched = monotonic()

    def announce(self, event: Event) -> None:
        """Call the user, if needed, because of an event that was just applied."""
        notice = notice_of(self._state, event)
        if notice is None:
            return
        is_idle = monotonic() - self._touched > IDLE_S
        if self._rings and (is_idle if self._has_focus is None else not self._has_focus):
            started = self._state.started
            ring(self._app, notice_text(notice, started.script if started is not None else ""))
        # A terminal keeps the focus when its user leaves the room.
        if self._notify is not None and (is_idle or self._has_focus is False):
            self._notify(self._state, notice)
