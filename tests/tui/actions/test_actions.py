from __future__ import annotations

from collections import Counter

import pytest
from helpers.lines import line_text
from textual.actions import parse
from textual.binding import Binding

from gradtui.run.state.selectors import RunStatus
from gradtui.tui.actions.action import GROUPS, Action, Scope
from gradtui.tui.actions.action_table import ACTIONS
from gradtui.tui.actions.bindings import actions_here, bindings, by_group, footer_actions
from gradtui.tui.app.app import GradtuiApp
from gradtui.tui.plots.footer import plot_footer
from gradtui.tui.plots.settings import VIEWS
from gradtui.tui.screens.dashboard import Dashboard
from gradtui.tui.screens.help import found_lines
from gradtui.tui.screens.output import OutputScreen
from gradtui.tui.screens.plots import PlotScreen
from gradtui.tui.screens.replay import ReplayDashboard
from gradtui.tui.tree.view import ModuleTree
from gradtui.tui.widgets.key_bar import key_bar

SCOPES: dict[Scope, type] = {
    "app": GradtuiApp, "dashboard": Dashboard, "tree": ModuleTree, "plots": PlotScreen, "output": OutputScreen,
    "replay": ReplayDashboard,
}  # fmt: skip


def test_actions_have_method_in_their_scope() -> None:
    for action in ACTIONS:
        assert callable(getattr(SCOPES[action.scope], f"action_{parse(action.call or action.id)[1]}", None)), action.id


def test_every_binding_has_its_method() -> None:
    for here in SCOPES.values():
        for binding in bound(here):
            namespace, name, _ = parse(binding.action)
            assert callable(getattr(GradtuiApp if namespace == "app" else here, f"action_{name}", None)), binding


def bound(here: type) -> list[Binding]:
    return [binding for binding in vars(here)["BINDINGS"] if isinstance(binding, Binding)]


def test_no_key_means_two_things() -> None:
    # The plots fill the screen: there the keys of tree and dashboard are not at work.
    for here in ((GradtuiApp, Dashboard, ModuleTree), (GradtuiApp, PlotScreen)):
        meanings: dict[str, set[str]] = {}
        for binding in (binding for each in here for binding in bound(each)):
            for key in binding.key.split(","):
                meanings.setdefault(key, set()).add(binding.action)
        two = {key: actions for key, actions in meanings.items() if len(actions) > 1}
        assert two == ({"q": {"app.leave", "dismiss"}} if PlotScreen in here else {})


def action_of(id: str) -> Action:
    return next(action for action in ACTIONS if action.id == id)


def test_eighty_columns_show_keys_of_plots() -> None:
    others = tuple(action_of(id) for id in ("export", "help", "pause"))
    for view in VIEWS:
        shown = {action.id for _, action in key_bar(plot_footer(view, others), 80)}
        assert {"next_view", "read_on", "change_scale", "help", "close"} <= shown
        assert ("zoom_in" in shown) == view.zooms
        assert ("next_mark" in shown) == (view.axis == "steps")
        assert ("row_down" in shown) == view.of_row
        assert ("next_phases" in shown) == view.has_phases
        assert ("smooth" in shown) == view.smooths
        assert ({"choose_metric", "change_axis"} <= shown) == view.has_metrics
        assert ("pin" in shown) == view.pins
        assert ("reorder" in shown) == view.has_orders


def test_ids_are_unique_and_groups_known() -> None:
    assert len({action.id for action in ACTIONS}) == len(ACTIONS)
    assert {action.group for action in ACTIONS} == set(GROUPS)


def test_every_action_is_bound_in_its_scope() -> None:
    for scope in SCOPES:
        made = {(binding.id, binding.action) for binding in bindings(scope) if isinstance(binding, Binding)}
        bound_here = [action for action in ACTIONS if action.scope == scope]
        assert made == {(each.id, f"on_row('{each.id}')" if each.on_row else each.name) for each in bound_here}


def test_help_tells_of_every_action_and_key() -> None:
    text = "\n".join(line_text(line) for line in found_lines(ACTIONS, "", 100))
    words = " ".join(text.split())
    for action in ACTIONS:
        assert (action.all_keys or "ctrl+p") in words
        assert action.mouse in words
        assert " ".join(action.help.split())[:30] in words


def test_every_action_stands_under_one_heading() -> None:
    listed = [action for _, actions in by_group() for action in actions]
    assert Counter(action.id for action in listed) == Counter(action.id for action in ACTIONS)


def test_footer_has_word_for_actions_in_order() -> None:
    actions = footer_actions()
    assert [action.footer for action in actions] == list(range(1, len(actions) + 1))
    assert all(action.label for action in actions)


def test_the_footer_offers_only_what_means_something_now() -> None:
    labels = {action.id: action.label for action in footer_actions(status=RunStatus.PAUSED)}
    assert labels["pause"] == "resume"
    over = {action.id for action in footer_actions(status=RunStatus.FAILED)}
    assert over.isdisjoint({"toggle_trainable", "pause", "run_one_step"})
    assert {"explain", "leave", "help"} <= over


def test_acting_keys_depend_on_focus_and_run() -> None:
    def ids(focused: str | None, status: RunStatus = RunStatus.RUNNING) -> tuple[set[str], set[str]]:
        own, others = actions_here(focused, status)
        return {action.id for action in own}, {action.id for action in others}

    own, others = ids("tree")
    assert {"toggle_trainable", "explain", "fold_all", "sort"} <= own
    assert {"pause", "filter", "show_memory", "leave"} <= others
    assert own.isdisjoint(others)
    own, others = ids("memory")
    assert own == {"one_down", "back", "explain"}
    assert others.isdisjoint({"toggle_trainable", "toggle_checkpointing", "sort"})
    own, others = ids("filter")
    assert own == {"keep_filter", "back", "one_down"}
    assert others == {"help", *(action.id for action in ACTIONS if action.priority)}
    own, others = ids("plot")
    assert own == {action.id for action in ACTIONS if action.scope == "plots"}
    assert "pause" in others
    assert others.isdisjoint({"undo", "filter", "leave"})
    own, others = ids("tree", RunStatus.ENDED)
    assert (own | others).isdisjoint({"toggle_trainable", "pause", "freeze", "breakpoints", "undo", "run_steps"})
    assert {"explain", "findings", "trace_step", "leave"} <= own | others


@pytest.mark.parametrize("focused", [None, "tree", "filter", "memory", "output", "plot"])
def test_no_key_acts_twice_in_one_place(focused: str | None) -> None:
    own, others = actions_here(focused)
    keys = [key for action in (*own, *others) for key in action.keys if focused != "plot" or action in own]
    assert len(keys) == len(set(keys))


def test_eighty_columns_show_the_keys_that_matter() -> None:
    shown = {action.id for _, action in key_bar(footer_actions(), 80)}
    wanted = {"toggle_trainable", "explain", "freeze", "undo", "pause", "trace_step", "plans", "findings", "help"}
    assert shown == wanted
    paused = {action.id for _, action in key_bar(footer_actions(status=RunStatus.PAUSED), 80)}
    assert paused == wanted


def test_keys_in_footer_do_not_overlap_and_fit() -> None:
    for width in range(0, 120, 7):
        placed = key_bar(footer_actions(), width)
        ends = [cells.stop for cells, _ in placed]
        starts = [cells.start for cells, _ in placed]
        assert all(end < start for end, start in zip(ends, starts[1:]))
        assert all(end <= width for end in ends)
