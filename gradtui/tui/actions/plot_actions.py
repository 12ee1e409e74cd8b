"""The actions of the plots screen; part of the table of all actions. Pure."""

from __future__ import annotations

from gradtui.tui.actions.action import BRACKETS, LEFT_RIGHT, PLUS_MINUS, SHIFT_ARROWS, UP_DOWN, Action

SHARED_WITH_PLOTS = ("export", "help", "pause", "run_one_step", "explain", "findings")
"""Actions of the dashboard and the app that have the same keys on the plots screen."""


def _action(
    id: str, keys: tuple[str, ...], title: str, help: str, call: str, label: str = "", mouse: str = "", shown: str = ""
) -> Action:
    return Action(
        id, keys, title, help, "Plots", "plots", label=label, mouse=mouse, in_palette=False, shown_key=shown, call=call
    )


PLOT_ACTIONS: tuple[Action, ...] = (
    _action(
        "next_view", ("tab",), "Next view",
        "Loss or norm over steps, how far steps move the weights, how the elements of a gradient are spread, norm by layer, "
        "memory over steps, or what the script logs.",
        "turn(1)", "view", mouse="click on its name",
    ),
    _action("previous_view", ("shift+tab",), "View before", "The same, the other way round.", "turn(-1)"),
    _action("row_up", ("up", "k"), "Row above", "Show the row above of the tree.", "go(-1)"),
    _action("row_down", ("down", "j"), "Row below", "Show the row below of the tree.", "go(1)", "row", shown=UP_DOWN),
    _action(
        "read_back", ("left",), "Read an earlier step",
        "A cursor reads all curves at a step (or layer, or size). It goes one value back, by a column at least. The window "
        "follows it.",
        "read_further(-1)", mouse="click in the plot",
    ),
    _action(
        "read_on", ("right",), "Read a later step", "It goes one value on; beyond the newest it is gone.",
        "read_further(1)", "read", shown=LEFT_RIGHT,
    ),
    _action(
        "previous_mark", ("left_square_bracket",), "Mark before",
        "To the freeze, change, spike or finding before the cursor. enter says what it was.", "read_at_mark(-1)",
    ),
    _action(
        "next_mark", ("right_square_bracket",), "Next mark", "To the next of them.", "read_at_mark(1)", "mark", shown=BRACKETS,
    ),
    _action("pan_back", ("shift+left",), "Earlier", "Earlier steps, or layers.", "pan(-1)"),
    _action("pan_on", ("shift+right",), "Later", "Later steps, or layers.", "pan(1)", "pan", shown=SHIFT_ARROWS),
    _action(
        "zoom_in", ("plus", "equals_sign"), "Zoom in", "Fewer steps, or layers.",
        "zoom(0.5)", "zoom", shown=PLUS_MINUS,
    ),
    _action("zoom_out", ("minus",), "Zoom out", "More of them.", "zoom(2.0)"),
    _action("zoom_none", ("0",), "All steps", "Everything that is kept, and the newest values.", "zoom_none", "all"),
    _action("oldest", ("home",), "Oldest", "As many, from the first on.", "oldest"),
    _action("newest", ("end",), "Newest", "As many, up to the newest, and on with the run.", "newest", "newest"),
    _action(
        "change_scale", ("l",), "Log or linear",
        "A logarithmic or a linear axis. That of the memory is linear: near its values, or from zero.",
        "change('rescaled')", "scale",
    ),
    _action(
        "smooth", ("w",), "Smooth",
        "A moving average over the faint curve: 0.6, 0.9, 0.97 of it stay at each point, or none. NaN, Inf and gaps stay "
        "as they are.",
        "change('smoother')", "smooth",
    ),
    _action(
        "pin", ("a",), "Pin the row or metric",
        "Keep the row in the plot to compare others with it, or the metric in the header; or no longer.", "pin", "pin",
    ),
    _action(
        "reorder", ("r",), "Order of layers", "Layers of one kind together, or all in the order of the tree, or of the calls.",
        "change('reordered')", "order",
    ),
    _action(
        "next_phases", ("m",), "Phases of the memory",
        "The total at the end of the step, at the end of each phase, or of one of them.", "change('with_next_phases')", "phase",
    ),
    _action(
        "choose_metric", ("slash",), "Choose metrics", "Choose by name which of the metrics that the script logs are drawn.",
        "choose_metric", "find",
    ),
    _action(
        "next_metric", ("greater_than_sign",), "Next metric", "The metrics of the next quantity.", "next_metric(1)", "metric",
    ),
    _action("previous_metric", ("less_than_sign",), "Metric before", "Those of the one before.", "next_metric(-1)"),
    _action("change_axis", ("o",), "Steps or epochs", "Draw metrics over steps or over epochs.", "change_axis", "axis"),
    _action("close", ("escape", "g", "q"), "Back", "Back to the dashboard.", "dismiss", "back"),
)  # fmt: skip
