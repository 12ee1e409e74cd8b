"""Makes the key bindings, the footer and the groups of the help from the table of all actions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from textual.binding import Binding, BindingType

from gradtui.state.selectors import RunStatus
from gradtui.tui.actions.action import GROUPS, UP_DOWN, Action, Scope
from gradtui.tui.actions.action_table import ACTIONS

_BACK = next(replace(action, label="tree") for action in ACTIONS if action.id == "back")
_ONE_DOWN = Action("one_down", (UP_DOWN,), "", "", "Moving", "dashboard")

_FOOTERS: dict[str, tuple[Action, ...]] = {
    "memory": (replace(_ONE_DOWN, label="phase"), _BACK),
    "output": (replace(_ONE_DOWN, label="scroll"), _BACK),
    "events": (replace(_ONE_DOWN, label="scroll"), _BACK),
}
"""Footer actions that come first while a panel has the focus, by the panel's id."""

_TYPING = (
    Action("keep_filter", ("enter",), "", "", "Model", "dashboard", label="keep the filter"),
    replace(_BACK, label="clear it"),
    replace(_ONE_DOWN, label="row"),
)


def bindings(scope: Scope, *others: str) -> list[BindingType]:
    """Return the Textual key bindings for the object that handles the actions of a scope, and those with the ids `others`.

    A keymap can give an action keys only if it has a binding: an action without keys has one for a key that no terminal sends.
    """
    return [
        Binding(
            ",".join(action.keys) or f"no key of {action.id}",
            f"on_row('{action.id}')" if action.on_row and scope == "dashboard" else action.name,
            action.title,
            show=False,
            priority=action.priority,
            id=action.id,
        )
        for action in ACTIONS
        if action.scope == scope or action.id in others
    ]


_CHANGES_THE_RUN = ("toggle_trainable", "pause", "run_one_step")
_HELD = (RunStatus.PAUSED, RunStatus.PAUSING)
_OVER = (RunStatus.ENDED, RunStatus.INTERRUPTED, RunStatus.FAILED)


def footer_actions(focused: str | None = None, status: RunStatus = RunStatus.RUNNING) -> list[Action]:
    """Return the footer actions that apply now, the most important first.

    Args:
        focused: id of the widget that has the focus.
        status: what the run is doing.
    """
    if focused == "filter":
        return list(_TYPING)
    usual = sorted((action for action in ACTIONS if action.footer), key=lambda action: action.footer)
    own = _FOOTERS.get(focused or "", ())
    return [*own, *applicable((action for action in usual if not (own and action.on_row)), status)]


def applicable(actions: Iterable[Action], status: RunStatus) -> list[Action]:
    """Leave out the actions that change the run if it is over; while it is paused, `pause` has the label "resume"."""
    if status in _OVER:
        return [action for action in actions if action.id not in _CHANGES_THE_RUN]
    if status in _HELD:
        return [replace(action, label="resume") if action.id == "pause" else action for action in actions]
    return list(actions)


def by_group(actions: Iterable[Action] = ACTIONS) -> list[tuple[str, list[Action]]]:
    """Group the actions under the headings of the help; within a group, those with a key come first."""
    listed = sorted(actions, key=lambda action: not action.keys)
    return [(group, [action for action in listed if action.group == group]) for group in GROUPS]
