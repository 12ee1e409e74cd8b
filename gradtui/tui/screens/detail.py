"""The dialog of the action `explain`: everything about one row, updated while it is open. UI thread."""

from __future__ import annotations

from gradtui.state.run_state import RunState
from gradtui.tui.explanations.explanations import explain
from gradtui.tui.rendering import detail_lines, elide_start, printable
from gradtui.tui.screens.text_dialog import TextDialog
from gradtui.tui.tree import row_path

_TITLE_WIDTH = 60


class DetailDialog(TextDialog):
    """Explains what a row is and what happens to it."""

    changes = True

    def __init__(self, state: RunState, row: int) -> None:
        self._state, self._row = state, row
        self._structure = state.tree.version
        path = row_path(state.tree, row) or state.tree.modules[row].name
        title = elide_start(printable(path), _TITLE_WIDTH)
        super().__init__(title, lambda width: detail_lines(explain(self._state, self._row), width))

    def update(self) -> None:
        """Show the current facts, unless the row belongs to an older model structure."""
        if self._state.tree.version == self._structure:
            super().update()
