"""A store of ranks whose answers come when the test says so. Pure: no thread, no clock."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import Any

from gradtui.probe.torch_private.rendezvous import NoStoreError

Values = dict[str, str]


class Connection:
    """The connection of one rank to the values that all ranks read. It has what an agreement needs of a `JobStore`.

    With `is_slow` calls wait until `answer` or `fail`. With `is_down` they fail at once.
    """

    def __init__(self, values: Values, *, is_slow: bool = False) -> None:
        self.values, self.is_slow, self.is_down = values, is_slow, False
        self.given_up: str | None = None
        self.calls: deque[tuple[Future[str], str, str]] = deque()

    def write_once(self, name: str, value: str) -> Future[str]:
        asked: Future[str] = Future()
        if self.given_up is not None:
            asked.set_exception(NoStoreError(self.given_up, is_final=True))
            return asked
        self.calls.append((asked, name, value))
        if self.is_down:
            self.fail()
        elif not self.is_slow:
            self.answer()
        return asked

    def answer(self) -> None:
        """Let the oldest call reach the store, and its answer the rank."""
        while self.calls:
            asked, name, value = self.calls.popleft()
            if asked.set_running_or_notify_cancel():
                asked.set_result(self._written(name, value))
                return

    def fail(self, *, is_written: bool = False) -> None:
        """Let the oldest call fail, before or after the store has heard of it."""
        while self.calls:
            asked, name, value = self.calls.popleft()
            if asked.set_running_or_notify_cancel():
                if is_written:
                    self._written(name, value)
                asked.set_exception(NoStoreError("the store does not answer"))
                return

    def _written(self, name: str, value: str) -> str:
        if not self.values.get(name):
            self.values[name] = value
        return self.values[name]


def no_wait(_asked: Future[Any]) -> None:
    """Wait for nothing."""
