"""Answers questions on a thread of its own, so that neither training nor the screen waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from time import monotonic

from gradtui.planner.forecaster import Forecaster
from gradtui.protocol.forecasts import ForecastAsked, ForecastMade

_REST, _LONGEST_REST = 3.0, 1.0
"""After an answer that took t seconds the thread rests for 3 t, a second at most: training gets the interpreter's lock
meanwhile."""


_LONGEST_ANSWER_S = 10.0
"""Seconds that `close` waits for an answer."""


class ForecastThread:
    """Answers the newest question; one that still waits is dropped. The peak comes in a second answer.

    Args:
        emit: receives each answer, on the thread `gradtui-forecast`.
    """

    def __init__(self, emit: Callable[[ForecastMade], None]) -> None:
        self._emit = emit
        self._forecaster = Forecaster()
        self._changed = threading.Condition()
        self._asked: ForecastAsked | None = None
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def ask(self, asked: ForecastAsked) -> None:
        """Answer a question soon. Any thread."""
        with self._changed:
            self._asked = asked
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="gradtui-forecast", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """Answer nothing from now on. Waits until the thread has ended: it must not call torch while the interpreter ends."""
        with self._changed:
            self._is_closed, self._asked = True, None
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_LONGEST_ANSWER_S)

    def _run(self) -> None:
        while (asked := self._next()) is not None:
            began = monotonic()
            for answer in self._answers(asked):
                self._emit(answer)
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed, min(_LONGEST_REST, _REST * (monotonic() - began)))

    def _next(self) -> ForecastAsked | None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._asked is not None)
            asked, self._asked = self._asked, None
            return None if self._is_closed else asked

    def _answers(self, asked: ForecastAsked) -> Iterator[ForecastMade]:
        """Yield the answer, and then, unless another question waits, the answer with the peak."""
        try:
            answer = self._forecaster.answer(asked)
            yield answer
            if self._asked is None and not self._is_closed:
                with_peak = self._forecaster.with_peak(answer, asked)
                if with_peak is not answer:
                    yield with_peak
        except Exception as error:  # noqa: BLE001 - the rules answer instead
            step, what = asked.operations, (f"the forecast: {type(error).__name__}",)
            yield ForecastMade(
                step.at, step.step, asked.flags, asked.checkpointed, asked.change, 0, 0, what, listing=step.listing
            )
