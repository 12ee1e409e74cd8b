"""The client of the plot server: sends the newest chart of each panel, and receives the pictures. UI thread.

Nothing here blocks. The caller draws by itself whenever the client has no picture: before the first answer, while an answer is
late, and for the rest of the run once the server has ended.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from dataclasses import replace

from gradtui.dataclass import dataclass
from gradtui.tui.charts.ansi import parse, style_keys
from gradtui.tui.charts.chart import Chart
from gradtui.tui.charts.frame import compose
from gradtui.tui.charts.plot_server import MessageReader, PlotServer, packed
from gradtui.tui.charts.request import Picture, PlotRequest

_READ_SIZE = 1 << 16

MAX_ANSWER_SECONDS = 2.0
"""Seconds without an answer after which the client's pictures are too old to be shown."""


@dataclass(frozen=True)
class _Order:
    key: str
    request: PlotRequest
    chart: Chart

    @property
    def layout(self) -> PlotRequest:
        """The request without its numbers. A picture may temporarily replace another one of the same layout."""
        curves, above = (
            tuple(replace(series, xs=(), ys=()) for series in lane)
            for lane in (self.request.series, self.request.above)
        )
        return replace(self.request, series=curves, above=above, verticals=(), x_limits=None)

    def picture(self, text: str) -> Picture | None:
        """Return the picture made from the server's answer; None if it does not have the requested size."""
        lines = parse(text, style_keys(self.chart))
        height = self.request.height - self.chart.layout.header
        if len(lines) != height or any(sum(len(run) for run, _ in line) != self.request.width for line in lines):
            return None
        return compose(self.request, self.chart, lines, "plotext")


class PlotClient:
    """The training process's end of the connection to a plot server. No method raises or blocks."""

    def __init__(self, server: PlotServer | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.connection = server.connection if server is not None else None
        """None once the server has ended: no further picture arrives."""
        self._clock = clock
        self._reader = MessageReader()
        self._unsent = b""
        self._number = 0
        self._has_arrived = False
        self._in_flight: _Order | None = None
        self._sent_at = 0.0
        self._pending: dict[str, _Order] = {}
        self._newest: dict[str, _Order] = {}
        self._pictures: dict[str, Picture] = {}

    def submit(self, key: str, request: PlotRequest, chart: Chart) -> None:
        """Request a picture of a sanitised request. Of each key only the newest request waits."""
        if self.connection is None:
            return
        order = _Order(key, request, chart)
        before = self._newest.get(key)
        if before is not None and before.layout != order.layout:
            self._pictures.pop(key, None)
        self._newest[key] = self._pending[key] = order
        self._exchange()

    @property
    def is_awaited(self) -> bool:
        """Whether a picture was requested that has not arrived yet."""
        return self.connection is not None and (self._in_flight is not None or bool(self._pending))

    def receive(self) -> bool:
        """Receive the pictures that have arrived, and send the next request. Return whether any came since the last call."""
        self._exchange()
        has_arrived, self._has_arrived = self._has_arrived, False
        return has_arrived

    def latest(self, key: str) -> Picture | None:
        """Return the newest picture of a key if it has the layout of the newest request and no answer is late, else None."""
        self._exchange()
        is_late = self._in_flight is not None and self._clock() - self._sent_at > MAX_ANSWER_SECONDS
        return None if is_late else self._pictures.get(key)

    def _exchange(self) -> None:
        """Receive the pending answers and send the next request."""
        if not self.is_awaited:
            return
        try:
            self._flush()
            self._receive()
            if self._in_flight is None and self._pending:
                order = self._pending.pop(next(iter(self._pending)))
                self._number = (self._number + 1) % (1 << 32)
                self._in_flight, self._sent_at = order, self._clock()
                self._unsent = packed(self._number, pickle.dumps(order.chart))
                self._flush()
        except (OSError, EOFError, ValueError):
            self._disconnect()

    def _flush(self) -> None:
        """Write as much as the socket accepts. Raises OSError if the server has ended."""
        while self._unsent and self.connection is not None:
            try:
                self._unsent = self._unsent[self.connection.send(self._unsent) :]
            except BlockingIOError:
                return

    def _receive(self) -> None:
        """Read answers. Raises OSError or EOFError if the server has ended, ValueError if an answer is malformed."""
        while self.connection is not None:
            try:
                data = self.connection.recv(_READ_SIZE)
            except BlockingIOError:
                return
            if not data:
                raise EOFError("the plot server has ended")
            for number, payload in self._reader.feed(data):
                self._accept(number, payload)

    def _accept(self, number: int, payload: bytes) -> None:
        order, self._in_flight = self._in_flight, None
        if order is None or number != self._number:
            raise ValueError("an answer to no question")
        self._has_arrived = True
        if self._newest[order.key].layout != order.layout:
            return
        picture = order.picture(payload.decode(errors="replace"))
        if picture is None:
            self._pictures.pop(order.key, None)
        else:
            self._pictures[order.key] = picture

    def _disconnect(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = self._in_flight = None
        self._pending.clear()
        self._pictures.clear()
