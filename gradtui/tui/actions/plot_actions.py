"""The actions of the plots screen; part of the table of all actions. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradtui.tui.actions.action import LEFT_RIGHT, PLUS_MINUS, UP_DOWN, Action

if TYPE_CHECKING:
    from gradtui.tui.plots.settings import View


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
        "Norm or loss over steps, how far steps move the weights, how the elements of a gradient are spread, norm by layer, or "
        "memory over steps.",
        "turn(1)", "view", mouse="click on its name",
    ),
    _action("previous_view", ("shift+tab",), "View before", "The same, the other way round.", "turn(-1)"),
    _action("row_up", ("up", "k"), "Row above", "Show the row above of the tree.", "go(-1)"),
    _action("row_down", ("down", "j"), "Row below", "Show the row below of the tree.", "go(1)", "row", shown=UP_DOWN),
    _action("pan_back", ("left",), "Earlier", "Earlier steps, or layers.", "move('panned', -1)"),
    _action("pan_on", ("right",), "Later", "Later steps, or layers.", "move('panned', 1)", "pan", shown=LEFT_RIGHT),
    _action(
        "zoom_in", ("plus", "equals_sign"), "Zoom in", "Fewer steps, or layers.",
        "move('zoomed', 0.5)", "zoom", shown=PLUS_MINUS,
    ),
    _action("zoom_out", ("minus",), "Zoom out", "More of them.", "move('zoomed', 2.0)"),
    _action("zoom_none", ("0",), "All steps", "Everything that is kept.", "zoom_none", "all"),
    _action("oldest", ("home",), "Oldest", "As many, from the first on.", "move('at_start')"),
    _action("newest", ("end",), "Newest", "As many, up to the newest, and on with the run.", "newest", "newest"),
    _action(
        "change_scale", ("l",), "Log or linear",
        "A logarithmic or a linear axis. That of the memory is linear: near its values, or from zero.",
        "change('change_scale')", "scale",
    ),
    _action(
        "smooth", ("w",), "Smooth",
        "A moving average over the faint curve: 0.6, 0.9, 0.97 of it stay at each point, or none. NaN, Inf and gaps stay "
        "as they are.",
        "change('smooth')", "smooth",
    ),
    _action("pin", ("a",), "Pin the row", "Keep the row in the plot to compare others with it, or no longer.", "pin", "pin"),
    _action(
        "reorder", ("r",), "Order of layers", "Layers in the order of the calls, or of the tree.",
        "change('reorder')", "order",
    ),
    _action("close", ("escape", "g", "q"), "Back", "Back to the dashboard.", "dismiss", "back"),
)  # fmt: skip

_BY_ID = {action.id: action for action in PLOT_ACTIONS}


def plot_footer(view: View, others: tuple[Action, ...]) -> list[Action]:
    """Return the footer actions that apply in a view, the most important first. `others` apply on every screen."""
    ids = ["next_view", "row_down"]
    ids += ["pan_on", "zoom_in"] if view.axis else []
    ids += ["change_scale"]
    ids += ["smooth"] if view.smooths else []
    ids += ["pin"] if view.pins else []
    ids += ["reorder"] if view.has_orders else []
    export, help_, *rest = others
    whole, newest = (["zoom_none"], ["newest"]) if view.axis else ([], [])
    return [*_shown(ids), export, *_shown(["close", *whole]), help_, *_shown(newest), *rest]


def _shown(ids: list[str]) -> list[Action]:
    return [_BY_ID[id] for id in ids]
