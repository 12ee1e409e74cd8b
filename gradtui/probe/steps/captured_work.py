"""What the script's CUDA graphs contain: the backwards and optimizer steps that each replay of a graph repeats."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import field
from typing import Any

from gradtui.dataclass import dataclass


@dataclass
class CapturedWork:
    """The work of one replay of a graph."""

    backwards: int = 0
    optimizers: list[int] = field(default_factory=list)
    """Indexes of the optimizers whose steps the graph contains, in order."""


class CudaGraphs:
    """Records what the script's graphs contain.

    `replaying` is called with the time before each replay of a graph that contains a backward or a step; `replayed` is
    called with the time and the work after it.
    """

    def __init__(self, replaying: Callable[[int], None], replayed: Callable[[int, CapturedWork], None]) -> None:
        self.capture: CapturedWork | None = None
        """The work captured so far into the graph that is being captured; None while no capture runs."""
        self.replaying = replaying
        self.replayed = replayed
        self.work: weakref.WeakKeyDictionary[Any, CapturedWork] = weakref.WeakKeyDictionary()
        """The work of each graph that contains a backward or a step."""

    def capture_began(self, now: int) -> None:  # noqa: ARG002 - as every callback of a hook
        """Handle the start of a capture."""
        self.capture = CapturedWork()

    def capture_ended(self, now: int, graph: Any) -> None:  # noqa: ARG002
        """Handle the end or the failure of a capture."""
        captured, self.capture = self.capture, None
        if captured is not None and captured != CapturedWork():
            self.work[graph] = captured
