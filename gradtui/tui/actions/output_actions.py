"""The actions of the output on the whole screen; part of the table of all actions. Pure."""

from __future__ import annotations

from gradtui.tui.actions.action import LEFT_RIGHT, UP_DOWN, Action

SHARED_WITH_OUTPUT = ("help", "findings")
"""Actions of the dashboard and the app that have the same keys there."""


def _action(
    id: str, keys: tuple[str, ...], title: str, help: str, label: str = "", shown: str = "", call: str = ""
) -> Action:
    return Action(id, keys, title, help, "Output", "output", label=label, in_palette=False, shown_key=shown, call=call)


OUTPUT_ACTIONS: tuple[Action, ...] = (
    _action(
        "search", ("slash",), "Search",
        "Search the output for a text, in capitals or not; a text with capitals in it is searched as it is written.", "search",
    ),
    _action(
        "next_match", ("n",), "Next match", "The next line with the text; after the last one the first.", "next",
        call="match(1)",
    ),
    _action(
        "previous_match", ("N",), "Match before", "The line with the text before this one.", "before", call="match(-1)"
    ),
    _action("line_up", ("up", "k"), "Line above", "One line up. The end is no longer followed.", call="go(-1)"),
    _action("line_down", ("down", "j"), "Line below", "One line down.", "scroll", UP_DOWN, "go(1)"),
    _action("pages_up", ("pageup",), "Page up", "One page up.", call="page(-1)"),
    _action("pages_down", ("pagedown", "space"), "Page down", "One page down.", call="page(1)"),
    _action("first_line", ("home", "less_than_sign"), "First line", "To the first line that is kept.", call="end(0)"),
    _action(
        "last_line", ("end", "greater_than_sign"), "Last line", "To the last line, and on with the output.", "follow",
        call="end(1)",
    ),
    _action("shift_left", ("left", "h"), "Left", "To the left, in lines longer than the screen.", call="shift(-1)"),
    _action(
        "shift_right", ("right", "l"), "Right", "To the right, in lines longer than the screen.", "long lines", LEFT_RIGHT,
        "shift(1)",
    ),
    _action("other_rank", ("r",), "Next rank", "Of a job: what the next rank prints alone, and what all print.", "rank"),
    _action("close_output", ("escape", "o", "q"), "Back", "End the search, and then back to the dashboard.", "back"),
)  # fmt: skip

_ORDER = (
    "search",
    "next_match",
    "previous_match",
    "line_down",
    "last_line",
    "close_output",
    "shift_right",
    "other_rank",
)


def output_footer(others: tuple[Action, ...], *, has_search: bool, has_ranks: bool) -> list[Action]:
    """Return the footer actions that apply, the most important first. `others` apply on every screen."""
    by_id = {action.id: action for action in OUTPUT_ACTIONS}
    left_out = {*(() if has_search else ("next_match", "previous_match")), *(() if has_ranks else ("other_rank",))}
    return [*(by_id[id] for id in _ORDER if id not in left_out), *others]
