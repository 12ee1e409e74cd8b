"""Which parameters the probe measures in detail, because an open plot shows them. UI thread."""

from __future__ import annotations

from gradtui.protocol.commands import Watch
from gradtui.state.run_state import RunState
from gradtui.transport.in_process import CommandQueue


class WatchedParameters:
    """Sends `Watch` commands. They do not change the run and need no answer, so they are not shown as pending."""

    def __init__(self, state: RunState, sink: CommandQueue) -> None:
        self._state, self._sink = state, sink
        self._paths: tuple[str, ...] = ()
        self.awaits_histograms = False
        """Whether the histograms of newly watched parameters are still awaited."""

    def watch(self, paths: tuple[str, ...]) -> None:
        """Have these parameters measured in detail, and no others."""
        if paths != self._paths and self._state.ended is None:
            self._paths, self.awaits_histograms = paths, bool(paths)
            self._sink.submit(lambda number: Watch(number, paths))
