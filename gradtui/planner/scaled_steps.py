"""The recorded step with other batch sizes, scaled once for each. Any thread."""

from __future__ import annotations

from fractions import Fraction

from gradtui.planner.batch import Batch, batch_of
from gradtui.planner.replay import Replay
from gradtui.protocol.forecasts import ForecastAsked
from gradtui.protocol.operations import OperationsRecorded


class ScaledSteps:
    """Keeps the batch of the step that was asked about last, and that step with the batch size that was asked about last."""

    def __init__(self) -> None:
        self._of: tuple[OperationsRecorded, int | None] | None = None
        self._batch: Batch | None = None
        self._scaled: tuple[Fraction | float, Replay] | None = None

    def batch(self, asked: ForecastAsked) -> Batch:
        """Return the batch of the step of a question. Raises `NoBatchDimensionError`."""
        same = self._of is not None and self._of[0] is asked.operations and self._of[1] == asked.batch_size
        if self._batch is None or not same:
            self._batch, self._scaled = None, None
            self._batch = batch_of(asked.operations, asked.batch_size)
            self._of = asked.operations, asked.batch_size
        return self._batch

    def step_of(self, asked: ForecastAsked, replay: Replay) -> tuple[Replay, int | None]:
        """Return the step with the batch size of a question, and that size; `replay` and None if it is that of the step.

        Raises `NoBatchDimensionError`.
        """
        if asked.batch_scale == 1:
            return replay, None
        batch = self.batch(asked)
        if self._scaled is None or self._scaled[0] != asked.batch_scale:
            self._scaled = asked.batch_scale, Replay(batch.scaled(asked.batch_scale))
        return self._scaled[1], round(batch.size * asked.batch_scale)
