"""The lines that say where NaN or Inf appeared first, and that stay visible. Pure."""

from __future__ import annotations

from gradtui.state.run_state import RunState
from gradtui.text import nonfinite_text
from gradtui.tui.rendering import Line, printable, wrap


def bad_step_lines(state: RunState, width: int, height: int) -> list[Line]:
    """Return at most `height` lines, but at least one; empty while every value was finite."""
    if state.bad_step is None:
        return []
    return wrap((("! ", "error"), (printable(nonfinite_text(state.bad_step)), "error")), width, 2)[: max(1, height)]
