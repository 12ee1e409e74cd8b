"""The dialog that divides up the memory of the device, updated while it is open. UI thread."""

from __future__ import annotations

from gradtui.state.run_state import RunState
from gradtui.tui.explanations.device_explanations import device_facts
from gradtui.tui.explanations.memory_device import device_lines
from gradtui.tui.rendering import BLANK, Line, detail_lines
from gradtui.tui.screens.text_dialog import TextDialog


class DeviceDialog(TextDialog):
    """The driver's figure, its parts as a bar, and an explanation of each part."""

    changes = True

    def __init__(self, state: RunState, *, colour: bool) -> None:
        self._state, self._colour = state, colour
        super().__init__("Memory of the device", self._lines)

    def _lines(self, width: int) -> list[Line]:
        bar = device_lines(self._state, width, colour=self._colour)
        return [*bar, *([BLANK] if bar else []), *detail_lines(device_facts(self._state), width)]
