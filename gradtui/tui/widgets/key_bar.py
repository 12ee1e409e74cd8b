"""The footer: the most important keys, as many as fit, to press or click. UI thread."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.message import Message

from gradtui.tui.actions import Action, keymap_of
from gradtui.tui.rendering import Line, Span
from gradtui.tui.widgets.line_view import LineView

_GAP, _NARROW_GAP = 2, 1
_WIDE = 100
"""From this width on, keys are two cells apart."""


def _gap(width: int) -> int:
    return _GAP if width >= _WIDE else _NARROW_GAP


def key_bar(actions: Sequence[Action], width: int) -> list[tuple[range, Action]]:
    """Return the cells of each action; the last actions are left out if they do not fit."""
    placed: list[tuple[range, Action]] = []
    start = 1
    for action in actions:
        end = start + len(action.key_text) + 1 + len(action.label)
        if end > width:
            break
        placed.append((range(start, end), action))
        start = end + _gap(width)
    return placed


class KeyBar(LineView):
    """Keys and their labels. A click on a key posts `Pressed`."""

    class Pressed(Message):
        """The user clicked an action."""

        def __init__(self, action: Action) -> None:
            super().__init__()
            self.action = action

    def __init__(self, actions: Sequence[Action], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._actions = actions

    def show(self, actions: Sequence[Action]) -> None:
        """Replace the shown actions."""
        if actions != self._actions:
            self._actions = actions
            self.redraw()

    def lines_for(self, width: int, height: int) -> Sequence[Line]:  # noqa: ARG002
        spans: list[Span] = [(" ", "")]
        for index, (_, action) in enumerate(key_bar(self._with_keys(), width)):
            spans += [(" " * _gap(width) if index else "", ""), (action.key_text, "key"), (f" {action.label}", "muted")]
        return [tuple(spans)]

    def on_click(self, event: events.Click) -> None:
        for cells, action in key_bar(self._with_keys(), self.content_size.width):
            if event.x in cells:
                self.post_message(self.Pressed(action))

    def _with_keys(self) -> list[Action]:
        return keymap_of(self.app).apply(self._actions)
