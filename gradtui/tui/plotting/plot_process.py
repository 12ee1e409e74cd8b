"""Pictures from the plot child: the newest chart of each panel goes out, pictures come back. On the UI thread.

A child that dies or does not answer in time costs a picture: it is killed and, after a pause, started again, a bounded
number of times. The caller draws by itself whenever there is no picture here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gradtui.tui.plotting.ansi import parse
from gradtui.tui.plotting.chart import Chart
from gradtui.tui.plotting.child_handle import ChildHandle, OwnChildren, Starter, default_command
from gradtui.tui.plotting.frame import compose
from gradtui.tui.plotting.layout import LABEL_WIDTH
from gradtui.tui.plotting.messages import drawing_of, encode_drawing, packed, style_keys
from gradtui.tui.plotting.request import Line, Picture, PlotRequest
from gradtui.tui.plotting.restarts import Restarts


@dataclass(frozen=True)
class Patience:
    """Seconds. `start` is allowed until the first answer: it includes the start of Python, at low priority beside a
    training loop that may use every core. `answer` is allowed for each one after it, counted from the last byte that
    moved."""

    answer: float = 2.0
    start: float = 10.0
    first_pause: float = 1.0


@dataclass(frozen=True)
class _Order:
    key: str
    request: PlotRequest
    chart: Chart

    def looks_like(self, other: _Order) -> bool:
        """Whether an older picture of one may stand in for the other: only the numbers differ."""
        return self._look() == other._look()

    def _look(self) -> tuple[object, ...]:
        request = self.request
        curves = tuple((series.label, series.color) for series in request.series)
        return (
            request.width,
            request.height,
            request.y_scale,
            request.title,
            request.x_label,
            request.unit,
            request.view,
            curves,
        )

    def picture(self, text: str) -> Picture | None:
        """The picture made of the child's answer; None where that is not of the size that was asked for."""
        lines = parse(text, style_keys(self.chart))
        height = self.request.height - self.chart.layout.header
        if len(lines) != height or any(_length(line) != self.request.width for line in lines):
            return None
        return compose(self.request, self.chart, lines, "plotext")


@dataclass
class _InFlight:
    number: int
    order: _Order
    deadline: float
    moved: int


class PlotProcess:
    """The plot child and what is on the way to and from it. No method raises, and only `close` waits.

    A copy in a forked process does nothing.
    """

    def __init__(
        self,
        command: Sequence[str] | None = None,
        *,
        log: int | None = None,
        starter: Starter | None = None,
        patience: Patience = Patience(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """The child starts with the first submitted chart, by `starter`, as a child of this process by default. `log` is a
        file descriptor for its stderr."""
        self._starter = starter or OwnChildren()
        self._command, self._log = command or default_command(self._starter.parent), log
        self._patience, self._clock = patience, clock
        self._owner = os.getpid()
        self._restarts = Restarts(patience.first_pause)
        self._child: ChildHandle | None = None
        self._ending: list[ChildHandle] = []
        self._first_answer: float | None = None
        self._in_flight: _InFlight | None = None
        self._numbers = 0
        self._pending: dict[str, _Order] = {}
        self._newest: dict[str, _Order] = {}
        self._pictures: dict[str, Picture] = {}
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The running child's process id, None while there is none."""
        return self._child.pid if self._child else None

    @property
    def given_up(self) -> bool:
        """Whether there will be no further pictures."""
        return self._closed or self._restarts.given_up

    def submit(self, key: str, request: PlotRequest, chart: Chart) -> None:
        """Ask for a picture of a sanitised request. Of each key only the newest waits; a new look drops the old
        picture."""
        if not self._mine() or self.given_up:
            return
        order = _Order(key, request, chart)
        before = self._newest.get(key)
        if before is not None and not before.looks_like(order):
            self._pictures.pop(key, None)
        self._newest[key] = order
        self._pending[key] = order
        self.poll()

    def latest(self, key: str) -> Picture | None:
        """The newest picture of a key, of the look that was submitted last."""
        self.poll()
        return self._pictures.get(key)

    def poll(self) -> None:
        """Take in what has come, send what waits, end and start the child where that is due."""
        if not self._mine():
            return
        self._ending = [child for child in self._ending if not child.reaped()]
        if self._child is not None and (self._in_flight or self._pending):
            try:
                self._exchange(self._child)
            except (OSError, EOFError, ValueError):
                self._fail()
        if self._child is None and self._pending and self._restarts.due(self._clock()):
            self._start()

    def close(self) -> None:
        """End the child and reap it, within about a second. There are no pictures afterwards."""
        if not self._mine():
            return
        self._closed = True
        self._drop_child()
        for child in self._ending:
            child.wait()
        self._ending.clear()
        self._pending.clear()
        self._pictures.clear()

    def _mine(self) -> bool:
        return not self._closed and os.getpid() == self._owner

    def _start(self) -> None:
        self._first_answer = None
        try:
            self._child = ChildHandle(self._command, self._log, self._starter)
            self._send_next(self._child)
        except (OSError, ValueError):
            self._fail()

    def _exchange(self, child: ChildHandle) -> None:
        child.flush()
        # What has come counts even when it is late: this process may have been stopped in between.
        for number, payload in child.received():
            self._accept(number, payload)
        flight = self._in_flight
        if flight is None:
            self._send_next(child)
        elif flight.moved != child.moved:
            flight.moved, flight.deadline = child.moved, self._deadline()
        elif self._clock() > flight.deadline:
            self._fail()

    def _send_next(self, child: ChildHandle) -> None:
        if not self._pending:
            return
        order = self._pending.pop(next(iter(self._pending)))
        self._numbers = (self._numbers + 1) % (1 << 32)
        flight = self._in_flight = _InFlight(self._numbers, order, self._deadline(), 0)
        child.send(packed(self._numbers, encode_drawing(drawing_of(order.chart, LABEL_WIDTH))))
        flight.moved = child.moved

    def _deadline(self) -> float:
        return self._clock() + (self._patience.start if self._first_answer is None else self._patience.answer)

    def _accept(self, number: int, payload: bytes) -> None:
        flight = self._in_flight
        if flight is None or number != flight.number:
            raise ValueError("an answer to no question")
        self._in_flight = None
        if self._first_answer is None:
            self._first_answer = self._clock()
        order = flight.order
        if not self._newest[order.key].looks_like(order):
            return
        picture = order.picture(payload.decode(errors="replace"))
        if picture is None:
            self._pictures.pop(order.key, None)
        else:
            self._pictures[order.key] = picture

    def _fail(self) -> None:
        now = self._clock()
        self._restarts.failed(now, 0.0 if self._first_answer is None else now - self._first_answer)
        # The chart that was being drawn may be what the child died of.
        suspect = self._in_flight.order if self._in_flight else None
        self._drop_child()
        self._pictures.clear()
        if self._restarts.given_up:
            self._pending.clear()
        else:
            self._pending = {key: order for key, order in self._newest.items() if order is not suspect}

    def _drop_child(self) -> None:
        self._in_flight = None
        if self._child is not None:
            self._child.kill()
            self._ending.append(self._child)
            self._child = None


def _length(line: Line) -> int:
    return sum(len(text) for text, _ in line)
