"""The actions of the plots screen that its footer names. Pure."""

from __future__ import annotations

from gradtui.tui.actions import PLOT_ACTIONS, Action
from gradtui.tui.plots.settings import View

_BY_ID = {action.id: action for action in PLOT_ACTIONS}


def plot_footer(view: View, others: tuple[Action, ...]) -> list[Action]:
    """Return the footer actions that apply in a view, the most important first. `others` apply on every screen."""
    ids = ["next_view", "read_on", "zoom_in" if view.zooms else "", "close"]
    ids += ["next_mark"] if view.axis == "steps" else []
    ids += ["reorder"] if view.has_orders else []
    ids += ["next_phases"] if view.has_phases else []
    ids += ["choose_metric", "change_axis"] if view.has_metrics else []
    ids += [
        "change_scale",
        "smooth" if view.smooths else "",
        "row_down" if view.of_row else "",
        "pin" if view.pins else "",
    ]
    export, help_, *rest = others
    whole = ["zoom_none", "pan_on", "newest"] if view.zooms else []
    metrics = ["pin", "next_metric"] if view.has_metrics else []
    return [*_shown(ids), help_, *_shown(metrics), export, *_shown(whole), *rest]


def _shown(ids: list[str]) -> list[Action]:
    return [_BY_ID[id] for id in ids if id]
