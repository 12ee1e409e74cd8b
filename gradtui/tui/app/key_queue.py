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
from collections.abc import Awaitable, Callable
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
    """Follows a key on its way to the app, which passes it to `KeyQueue.on_key_followed`."""

    def __init__(self, number: int, rounds_left: int) -> None:
        super().__init__()
        self.number, self.rounds_left = number, rounds_left


class KeyQueue:
    """Passes keys and pasted text to an app one at a time.

    Args:
        app: the app, whose `on_event` calls that of this queue.
        handle: handles an event as an app without this queue does.
    """

    def __init__(self, app: App[str], handle: Callable[[events.Event], Awaitable[None]]) -> None:
        self._app, self._handle_event = app, handle
        self._waiting: deque[events.Key | events.Paste] | None = None
        """Keys and pastes typed while another key is being handled; None while no key is being handled."""
        self._number = 0
        """The number of the newest message that follows a key; older messages are ignored."""
        self._limit: asyncio.TimerHandle | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a key has not yet taken full effect."""
        return self._waiting is not None

    def start(self) -> None:
        """Handle the first key when the app's first screen is ready. Call this when the app is mounted."""
        self._app.screen_change_signal.subscribe(self._app, self._follow_to, immediate=True)
        self._hold()
        self._follow()

    async def on_event(self, event: events.Event) -> None:
        """Handle an event of the app now, or a key or a paste after those before it."""
        if not isinstance(event, (events.Key, events.Paste)) or event.is_forwarded:
            await self._handle_event(event)
        elif self._waiting is not None:
            self._waiting.append(event)
        else:
            self._hold()
            await self._handle(event)

    def on_key_followed(self, message: KeyFollowed) -> None:
        """Handle the next key, because the app has received the message that follows the one before it."""
        message.stop()
        if message.number != self._number:
            return
        if message.rounds_left:
            self._follow(message.rounds_left)
        else:
            # A focus change is a callback in the app's queue, and a dialog's result is a callback between two messages.
            # As the last callback in both, the next key comes after them.
            self._app.call_later(self._app.call_next, self._next_key, message.number)

    def _hold(self) -> None:
        self._waiting = deque()

    async def _handle(self, event: events.Key | events.Paste) -> None:
        try:
            await self._handle_event(event)
        finally:
            self._follow()

    def _follow(self, rounds: int = _ROUNDS) -> None:
        """Post a message behind the key, or behind what opens the active screen."""
        self._number += 1
        if self._limit is not None:
            self._limit.cancel()
        later = asyncio.get_running_loop().call_later
        self._limit = later(MAX_SECONDS, self._app.call_later, self._next_key, self._number)
        with suppress(ScreenStackError):  # the app is closing
            (self._app.focused or self._app.screen).post_message(KeyFollowed(self._number, rounds - 1))

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
