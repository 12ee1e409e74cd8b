"""The dialog that says what the marks at the cursor of a plot stand for. UI thread."""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.run.state.over_steps.markers import Marker
from gradtui.run.state.run_state import RunState
from gradtui.tui.explanations.mark_lines import mark_rows
from gradtui.tui.rendering import detail_lines
from gradtui.tui.screens.text_dialog import DialogLines, TextDialog


class MarkDialog(TextDialog[None]):
    """Says what happened at a step, and what came of it, which may still be measured."""

    changes = True

    def __init__(self, state: RunState, marks: Sequence[Marker]) -> None:
        super().__init__(
            f"Step {marks[0].step:,}", DialogLines(lambda width: detail_lines(mark_rows(state, marks), width))
        )
