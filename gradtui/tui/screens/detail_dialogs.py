"""The dialogs that explain a row, the memory of the device and the memory of a step, updated while they are open. UI thread."""

from __future__ import annotations

from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree.rows import row_path
from gradtui.tui.charts.pictures import HeldRequest, Pictures
from gradtui.tui.explanations.explanations import explain
from gradtui.tui.explanations.memory_device import device_facts, device_lines, other_device_lines
from gradtui.tui.explanations.memory_profile_view import (
    CURVE_ROWS,
    closing_lines,
    ran_lines,
    step_lines,
    step_request,
    unprofiled_lines,
    waiting_lines,
)
from gradtui.tui.rendering import BLANK, Line, detail_lines, elide_start, printable
from gradtui.tui.screens.text_dialog import DialogLines, TextDialog

_TITLE_WIDTH = 60


class DetailDialog(TextDialog[None]):
    """Explains what a row is and what happens to it."""

    changes = True

    def __init__(self, state: RunState, row: int) -> None:
        self._state, self._row = state, row
        self._structure = state.tree.version
        path = row_path(state.tree, row) or state.tree.modules[row].name
        title = elide_start(printable(path), _TITLE_WIDTH)
        super().__init__(title, DialogLines(lambda width: detail_lines(explain(self._state, self._row), width)))

    def update(self) -> None:
        """Show the current facts, unless the row belongs to an older model structure."""
        if self._state.tree.version == self._structure:
            super().update()


class DeviceDialog(TextDialog[None]):
    """The driver's figure, its parts as a bar, and an explanation of each part."""

    changes = True

    def __init__(self, state: RunState, *, colour: bool) -> None:
        self._state, self._colour = state, colour
        super().__init__("Memory of the device", DialogLines(self._lines))

    def _lines(self, width: int) -> list[Line]:
        bar = device_lines(self._state, width, colour=self._colour)
        bar += other_device_lines(self._state, width, colour=self._colour)
        return [*bar, *([BLANK] if bar else []), *detail_lines(device_facts(self._state), width)]


class StepDialog(TextDialog[None]):
    """Shows the newest memory profile of a step, and the next one once it has arrived, which may have been requested.

    `runs_step`: training was paused, and the request runs one step.
    """

    changes = True

    def __init__(self, state: RunState, pictures: Pictures, *, is_requested: bool, runs_step: bool = False) -> None:
        self._state, self._pictures = state, pictures
        self._curve = HeldRequest()
        self._is_requested = is_requested
        self._runs_step = runs_step
        self._shown = self._before = state.step_profile
        super().__init__("Memory within a step", DialogLines(self._lines))

    def _lines(self, width: int) -> list[Line]:
        state, step = self._state, self._state.step_profile
        if step is not self._shown:
            self._shown = step
            self._curve.renew()
        lines = step_lines(state, width)
        if self._is_requested and step is self._before and state.ended is None:
            lines = [*waiting_lines(state, width, self._runs_step), *(lines if step is not None else ())]
        elif self._runs_step and step is not self._before:
            lines = [*ran_lines(width), *lines]
        if step is None and not self._is_requested:
            lines = unprofiled_lines(state, width)
        if step is None:
            return lines
        request = self._curve.request(
            width, CURVE_ROWS, lambda w, h: step_request(step, w, h, state.held_since_load or 0)
        )
        picture = self._pictures.picture("step", request).lines if request is not None else ()
        return [*lines, *picture, *closing_lines(state, width)]
