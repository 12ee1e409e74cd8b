"""The dialog that sets and clears breakpoints. UI thread."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from gradtui.protocol.commands import ClearBreakpoint
from gradtui.run.state.run_state import RunState
from gradtui.tui.rendering import printable
from gradtui.tui.requests import breakpoints
from gradtui.tui.requests.requests import Make, Refusal
from gradtui.tui.screens.dialog import Dialog

_NOTES = (
    "Training pauses once, at the first step boundary at which the condition is known to hold.",
    "Memory is the total at the end of a phase, and peak the highest total of a step. A finding counts when it is confirmed.",
)


class BreakpointDialog(Dialog[Make | None]):
    """Dismissed with the command that sets or clears a breakpoint, None if the user closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False, priority=True),
        Binding("down", "move(1)", show=False, priority=True),
        Binding("ctrl+d", "clear", show=False, priority=True),
    ]

    def __init__(self, state: RunState) -> None:
        super().__init__()
        self._state = state
        self._set: list[tuple[int, str]] = breakpoints.listed(state)
        self._wrong = Static("", markup=False, id="form-wrong")

    def compose(self) -> ComposeResult:
        clears = " · ↑↓ ctrl+d clears one" if self._set else ""
        with self.box("Breakpoints", f"enter sets it{clears} · esc closes"):
            yield Static("\n".join((*_NOTES, breakpoints.EXAMPLES)), markup=False, id="form-notes")
            yield Input(placeholder="loss > 3", compact=True, id="selection")
            yield OptionList(
                *(Option(Content(f" {printable(text)}")) for _, text in self._set), id="answers", compact=True
            )
            yield self._wrong

    def on_mount(self) -> None:
        options = self.query_one(OptionList)
        options.can_focus = False
        options.display = bool(self._set)
        self.query_one(Input).cursor_blink = False
        self.query_one(Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._wrong.update("")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        made = breakpoints.typed(event.value, self._state)
        if isinstance(made, Refusal):
            self._wrong.update(made.reason)
        else:
            self.dismiss(made)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()

    def action_clear(self) -> None:
        """Clear the highlighted breakpoint."""
        index = self.query_one(OptionList).highlighted
        if index is None or index >= len(self._set):
            self._wrong.update("No breakpoint is set.")
            return
        breakpoint, _ = self._set[index]
        self.dismiss(lambda number: ClearBreakpoint(number, breakpoint))
