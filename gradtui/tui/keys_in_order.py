"""Keys typed faster than they are handled: those behind one that moves the focus wait until it has moved. UI thread.

A key goes at once to whatever has the focus, and does its work there some messages later. What a person types right behind `/`
or behind the end of a filter would otherwise act on the wrong thing: letters of a filter as commands, a space on another row.
"""

from __future__ import annotations

from textual import events
from textual.app import App
from textual.message import Message
from textual.timer import Timer

MOST_SECONDS = 1.0
"""Longer no key is kept waiting, whatever became of the one before."""


class FocusMoved(Message):
    """What a key was to do to the focus has been asked for."""


class KeysInOrder(App[str]):
    """An app in which the keys after one that moves the focus go where it has moved to."""

    _waiting: list[events.Key] | None = None
    """The keys behind one that is on its way to moving the focus."""
    _at_the_latest: Timer | None = None

    def moves_focus(self, key: str) -> bool:
        """Whether this key, as things stand, will end in a `FocusMoved`."""
        raise NotImplementedError

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and not event.is_forwarded:
            if self._waiting is not None:
                self._waiting.append(event)
                return
            if self.moves_focus(event.key):
                self._waiting = []
                self._at_the_latest = self.set_timer(MOST_SECONDS, self._go_on)
        await super().on_event(event)

    async def on_focus_moved(self, event: FocusMoved) -> None:
        event.stop()
        # The focus itself moves by a callback of the app's: this one comes after it.
        self.call_later(self._go_on)

    async def _go_on(self) -> None:
        if self._at_the_latest is not None:
            self._at_the_latest.stop()
        waiting, self._waiting = self._waiting or [], None
        for event in waiting:
            # One of them may move the focus again, and those behind it wait once more.
            await self.on_event(event)
