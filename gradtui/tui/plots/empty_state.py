"""Says why a plot of watched parameters is empty, and when it will be filled. Pure."""

from __future__ import annotations

from gradtui.state.run_state import RunState
from gradtui.state.selectors import RunStatus, run_status
from gradtui.tui.plots.options import PlotOptions
from gradtui.tui.plots.rows import with_gradient
from gradtui.tui.rendering import printable


def for_watched(state: RunState, options: PlotOptions, what: str) -> str:
    """Say what the plot of the selected row waits for, in one or two sentences. `what` is the subject of the plot."""
    selection = options.selection
    if selection is None:
        return "Waiting for the script to build a model."
    name = printable(selection.name)
    if selection.first == selection.last:
        return f"{name} has no parameters."
    if state.ended is not None:
        return f"{name}: the run ended before it was measured. {what} is measured on sampled steps."
    if not with_gradient(state.tree, selection):
        return f"{name} gets no gradient, so there is nothing to show of it; enter says why."
    words = f"{name}: waiting for the next sampled step. {what} is measured on sampled steps."
    if run_status(state) in (RunStatus.PAUSED, RunStatus.PAUSING):
        return f"{words} Training is paused: n runs one step."
    return words
