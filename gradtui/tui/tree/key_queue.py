"""Handles one key at a time: the next key waits until the previous one has taken full effect. UI thread.

Textual forwards a key to the focused widget at once. The key takes effect some messages later: it opens a dialog, moves the
focus or submits a form. Without this queue a key typed right after it would reach the previous screen: `g` in `f` `g` would not
reach the dialog that `f` opens, and the letters of a filter would be handled as commands.

A message follows each key along the same route, from the focused widget up to the app. When it arrives, the key has been
handled.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from textual import events
from textual.app import App, ScreenStackError
from textual.message import Message
from textual.screen import Screen

MAX_SECONDS = 5.0
"""Seconds after which a key no longer waits for the previous one, in case the message behind that one was lost."""

_ROUNDS = 2
"""The first message follows the key; the second follows what a widget posts in response, such as `Input.Submitted`."""


class KeyFollowed(Message):
    """Follows a key on its way to the app."""

    def __init__(self, number: int, rounds_left: int) -> None:
        super().__init__()
        self.number, self.rounds_left = number, rounds_left


class KeyQueue(App[str]):
    """An app that handles keys and pasted text one at a time, starting when its first screen is ready."""

    _waiting: deque[events.Key | events.Paste] | None = None
    """Keys and pastes typed while another key is being handled; None while no key is being handled."""
    _number = 0
    """The number of the newest message that follows a key; older messages are ignored."""
    _limit: asyncio.TimerHandle | None = None

    @property
    def key_under_way(self) -> bool:
        """Whether a key has not yet taken full effect."""
        return self._waiting is not None

    def on_mount(self) -> None:
        self.screen_change_signal.subscribe(self, self._follow_to, immediate=True)
        self._hold()
        self._follow()

    async def on_event(self, event: events.Event) -> None:
        if not isinstance(event, (events.Key, events.Paste)) or event.is_forwarded:
            await super().on_event(event)
        elif self._waiting is not None:
            self._waiting.append(event)
        else:
            self._hold()
            await self._handle(event)

    def on_key_followed(self, message: KeyFollowed) -> None:
        message.stop()
        if message.number != self._number:
            return
        if message.rounds_left:
            self._follow(message.rounds_left)
        else:
            # A focus change is a callback in the app's queue, and a dialog's result is a callback between two messages.
            # As the last callback in both, the next key comes after them.
            self.call_later(self.call_next, self._next_key, message.number)

    def _hold(self) -> None:
        self._waiting = deque()

    async def _handle(self, event: events.Key | events.Paste) -> None:
        try:
            await super().on_event(event)
        finally:
            self._follow()

    def _follow(self, rounds: int = _ROUNDS) -> None:
        """Post a message behind the key, or behind what opens the active screen."""
        self._number += 1
        if self._limit is not None:
            self._limit.cancel()
        later = asyncio.get_running_loop().call_later
        self._limit = later(MAX_SECONDS, self.call_later, self._next_key, self._number)
        with suppress(ScreenStackError):  # the app is closing
            (self.focused or self.screen).post_message(KeyFollowed(self._number, rounds - 1))

    def _follow_to(self, _: Screen[object]) -> None:
        """Post the following message to the new active screen.

        A message posted to a removed screen does not come back, and a screen that opens has no focus yet.
        """
        if self._waiting is not None:
            self._follow()

    async def _next_key(self, number: int) -> None:
        if number != self._number:
            return
        if self._limit is not None:
            self._limit.cancel()
        if self._waiting:
            await self._handle(self._waiting.popleft())
        else:
            self._waiting = self._limit = None
