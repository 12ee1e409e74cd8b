"""Makes the key bindings, the footer and the groups of the help from the table of all actions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from textual.binding import Binding, BindingType

from gradtui.run.state.selectors import RunStatus
from gradtui.tui.actions.action import GROUPS, UP_DOWN, Action, Scope
from gradtui.tui.actions.action_table import ACTIONS
from gradtui.tui.actions.output_actions import SHARED_WITH_OUTPUT
from gradtui.tui.actions.plot_actions import SHARED_WITH_PLOTS

_BY_ID = {action.id: action for action in ACTIONS}
_BACK = replace(_BY_ID["back"], label="tree", title="Back to the tree")
_ONE_DOWN = Action("one_down", (UP_DOWN,), "", "", "Moving", "dashboard")
_SCROLL = replace(_ONE_DOWN, label="scroll", title="Scroll")

_FOOTERS: dict[str, tuple[Action, ...]] = {
    "memory": (replace(_ONE_DOWN, label="phase", title="Choose a phase"), _BACK),
    "output": (
        _SCROLL,
        Action(
            "fill",
            ("enter",),
            "Fill the screen",
            "",
            "Screen",
            "dashboard",
            label="whole screen",
            call="fill_with_output",
        ),
        _BACK,
    ),
    "events": (_SCROLL, _BACK),
    "ranks": (
        replace(_ONE_DOWN, label="rank", title="Choose a rank"),
        replace(_BY_ID["explain"], label="show rank", title="Show the rank under the cursor"),
        _BACK,
    ),
}
"""Footer actions that come first while a panel has the focus, by the panel's id."""

_TYPING = (
    Action("keep_filter", ("enter",), "Keep the filter", "", "Model", "dashboard", label="keep the filter"),
    replace(_BACK, label="clear it", title="Clear the filter"),
    replace(_ONE_DOWN, label="row", title="Go to another row"),
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


_HELD = (RunStatus.PAUSED, RunStatus.PAUSING)
_WITHOUT_RUN = ("leave", "suspend")
"""The actions of training that the screen of a recording has."""
_OVER = (RunStatus.ENDED, RunStatus.INTERRUPTED, RunStatus.FAILED, RunStatus.OUT_OF_SIGHT)


def footer_actions(
    focused: str | None = None, status: RunStatus = RunStatus.RUNNING, *, replays: bool = False, toggle: str = ""
) -> list[Action]:
    """Return the footer actions that apply now, the most important first.

    Args:
        focused: id of the widget that has the focus.
        status: what the run is doing.
        replays: the screen is that of a recording.
        toggle: what `toggle_trainable` does to the row under the cursor, if that is known.
    """
    if focused == "filter":
        return list(_TYPING)
    usual = sorted(
        (action for action in ACTIONS if action.footer), key=lambda action: (action.scope != "replay", action.footer)
    )
    usual = [
        replace(action, label=toggle) if toggle and action.id == "toggle_trainable" else action for action in usual
    ]
    own = _FOOTERS.get(focused or "", ())
    return [*own, *applicable((action for action in usual if not (own and action.on_row)), status, replays=replays)]


def applicable(actions: Iterable[Action], status: RunStatus, *, replays: bool = False) -> list[Action]:
    """Leave out the actions that need a run if it is over; while it is paused, `pause` resumes it.

    Of a recording, leave out those that change a run; without one, those that move through it.
    """
    if replays:
        return [action for action in actions if action.group != "Training" or action.id in _WITHOUT_RUN]
    actions = [action for action in actions if action.scope != "replay"]
    if status in _OVER:
        return [action for action in actions if not action.needs_run]
    if status in _HELD:
        return [
            replace(action, label="resume", title="Resume") if action.id == "pause" else action for action in actions
        ]
    return list(actions)


def actions_here(
    focused: str | None, status: RunStatus = RunStatus.RUNNING, *, replays: bool = False
) -> tuple[list[Action], list[Action]]:
    """Return the actions whose keys act now: those of the widget with the focus, and those that have keys everywhere.

    The keys that move a cursor in the tree are left out.

    Args:
        focused: id of the widget that has the focus; "plot" is the plots screen, "output-text" the output on the whole screen.
        status: what the run is doing.
        replays: the screen is that of a recording.
    """
    keyed = [action for action in applicable(ACTIONS, status, replays=replays) if action.keys]
    if focused == "plot":
        own = [action for action in keyed if action.scope == "plots"]
        return own, [action for action in keyed if action.id in SHARED_WITH_PLOTS or action.priority]
    if focused == "output-text":
        own = [action for action in keyed if action.scope == "output"]
        return own, [action for action in keyed if action.id in SHARED_WITH_OUTPUT or action.priority]
    if focused == "filter":
        return list(_TYPING), [action for action in keyed if action.priority or action.id == "help"]
    everywhere = [action for action in keyed if action.scope in ("app", "dashboard", "replay") and not action.on_row]
    if focused in (None, "tree"):
        own = [action for action in keyed if action.on_row or (action.scope == "tree" and action.group != "Moving")]
        return sorted(own, key=lambda action: GROUPS.index(action.group)), everywhere
    own = list(_FOOTERS.get(focused, ()))
    if focused == "memory":
        own.append(replace(_BY_ID["explain"], title="Explain the memory"))
    return own, [action for action in everywhere if not own or action.id != "back"]


def by_group(actions: Iterable[Action] = ACTIONS) -> list[tuple[str, list[Action]]]:
    """Group the actions under the headings of the help; within a group, those with a key come first."""
    listed = sorted(actions, key=lambda action: not action.keys)
    return [(group, [action for action in listed if action.group == group]) for group in GROUPS]
