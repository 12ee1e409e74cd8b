"""The dialog with the memory profile of one step, filled in as soon as the step has ended. UI thread."""

from __future__ import annotations

from gradtui.state.run_state import RunState
from gradtui.tui.charts.pictures import HeldRequest, Pictures
from gradtui.tui.explanations.memory_profile_view import (
    CURVE_ROWS,
    closing_lines,
    step_lines,
    step_request,
    waiting_lines,
)
from gradtui.tui.rendering import Line
from gradtui.tui.screens.text_dialog import TextDialog


class StepDialog(TextDialog):
    """Shows the newest memory profile of a step, and the next one once it has arrived."""

    changes = True

    def __init__(self, state: RunState, pictures: Pictures) -> None:
        self._state, self._pictures = state, pictures
        self._curve = HeldRequest()
        self._shown = self._before = state.traced
        super().__init__("The memory of a step", self._lines)

    def _lines(self, width: int) -> list[Line]:
        state, step = self._state, self._state.traced
        if step is not self._shown:
            self._shown = step
            self._curve.renew()
        lines = step_lines(state, width)
        if step is self._before and state.ended is None:
            lines = [*waiting_lines(state, width), *(lines if step is not None else ())]
        if step is None:
            return lines
        request = self._curve.request(width, CURVE_ROWS, lambda w, h: step_request(step, w, h))
        picture = self._pictures.picture("step", request).lines if request is not None else ()
        return [*lines, *picture, *closing_lines(width)]
