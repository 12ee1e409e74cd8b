"""Answers questions on a thread of its own, so that neither training nor the screen waits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import monotonic

from gradtui.planner.forecaster import Forecaster
from gradtui.protocol.forecasts import ForecastAsked, ForecastMade
from gradtui.system.own_thread import OwnThread

_REST, _REST_IN_LIST, _MAX_REST = 3.0, 1.0, 1.0
"""After an answer that took t seconds the thread rests for 3 t, a second at most: training gets the interpreter's lock
meanwhile. It rests for t while a user waits for the answers of a list."""


_MAX_ANSWER_S = 10.0
"""Seconds that `close` waits for an answer."""


class ForecastThread:
    """Answers the newest question and those after it; others that still wait are dropped. The peak comes in a second answer.

    It answers the questions of a list meanwhile, one after the other, and first all of them without peaks.

    Args:
        emit: receives each answer, on the thread `gradtui-forecast`.
    """

    def __init__(self, emit: Callable[[ForecastMade], None]) -> None:
        self._emit = emit
        self._forecaster = Forecaster()
        self._changed = threading.Condition()
        self._open: list[ForecastAsked] = []
        """The questions whose answer or peak is still to come, the one that is being answered included."""
        self._listed: deque[tuple[ForecastAsked, ForecastMade | None]] = deque()
        """The questions of the list that wait; with their first answer, those whose peak is still to be forecast."""
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def ask(self, asked: ForecastAsked) -> None:
        """Answer a question soon, and those after it. Has no effect while all of them are still to be answered. Any thread."""
        questions = list(_chain(asked))
        with self._changed:
            if all(each in self._open for each in questions):
                return
            self._open = questions
            self._wake()

    def ask_all(self, asked: Sequence[ForecastAsked]) -> None:
        """Answer a list of questions instead of the list before. Any thread."""
        with self._changed:
            self._listed = deque((each, None) for each in asked)
            self._wake()

    def _wake(self) -> None:
        if self._thread is None and not self._is_closed:
            self._thread = OwnThread(self._run, "gradtui-forecast")
            self._thread.start()
        self._changed.notify_all()

    def close(self) -> None:
        """Answer nothing from now on. Waits until the thread has ended: it must not call torch while the interpreter ends."""
        with self._changed:
            self._is_closed = True
            self._open.clear()
            self._listed.clear()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_MAX_ANSWER_S)

    def _run(self) -> None:
        while self._has_next():
            began = monotonic()
            self._answer_next()
            with self._changed:
                rest = _REST_IN_LIST if self._listed else _REST
                self._changed.wait_for(lambda: self._is_closed, min(_MAX_REST, rest * (monotonic() - began)))

    def _has_next(self) -> bool:
        """Wait for a question. Return False once this is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or bool(self._open) or bool(self._listed))
            return not self._is_closed

    def _answer_next(self) -> None:
        with self._changed:
            asked = self._open[0] if self._open else None
            listed = self._listed.popleft() if asked is None and self._listed else None
        if asked is not None:
            answer = self._answer(asked)
            self._emit(answer)
            # Unless there are other questions by now.
            if asked in self._open:
                self._emit_peak(asked, answer)
            with self._changed:
                if asked in self._open:
                    self._open.remove(asked)
        elif listed is not None and listed[1] is not None:
            self._emit_peak(listed[0], listed[1])
        elif listed is not None:
            answer = self._answer(listed[0])
            self._emit(answer)
            with self._changed:
                # Unless there is another list by now.
                if not self._listed or self._listed[-1][0].operations is listed[0].operations:
                    self._listed.append((listed[0], answer))

    def _emit_peak(self, asked: ForecastAsked, answer: ForecastMade) -> None:
        try:
            with_peak = self._forecaster.with_peak(answer, asked)
        except Exception:  # noqa: BLE001 - the peak stays unknown
            with_peak = replace(answer, is_final=True)
        self._emit(with_peak)

    def _answer(self, asked: ForecastAsked) -> ForecastMade:
        try:
            return self._forecaster.answer(asked)
        except Exception as error:  # noqa: BLE001 - the rules answer instead
            step, what = asked.operations, (f"the forecast: {type(error).__name__}",)
            return ForecastMade(
                step.at, step.step, asked.flags, asked.checkpointed, asked.change, 0, 0, what, listing=step.listing
            )


def _chain(asked: ForecastAsked | None) -> Iterator[ForecastAsked]:
    while asked is not None:
        yield replace(asked, then=None)
        asked = asked.then
