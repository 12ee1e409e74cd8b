"""Waiting for something outside of any terminal."""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE_S = 60.0


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait until the condition is true. Fails where that does not come, and says for what it waited."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not seen in {DEADLINE_S} s: {what}"
        time.sleep(0.01)
