"""The dialog that opens when the run is held before an optimizer's step with NaN or Inf: the cause, then choices. UI thread."""

from __future__ import annotations

from itertools import starmap
from time import monotonic
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.widgets import OptionList, Static

from gradtui.protocol.vocabulary import HeldStep
from gradtui.run.state.run_state import RunState
from gradtui.tui.actions import keymap_of
from gradtui.tui.rendering import printable
from gradtui.tui.requests.held_step import Choice, choices, facts
from gradtui.tui.screens.dialog import Dialog, keyed_option

SETTLE_S = 0.5
"""Keys that choose have no effect for this long: the dialog opens by itself, while the user may be typing."""


class HeldStepDialog(Dialog[Choice | None]):
    """Dismissed with a `Choice`, None for staying paused."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(key, f"choose('{key}')", show=False) for key in "slc"),
        Binding("q", "dismiss", show=False),
        Binding("k", "move(-1)", show=False),
        Binding("j", "move(1)", show=False),
    ]

    def __init__(self, state: RunState, held: HeldStep) -> None:
        super().__init__()
        self._facts = facts(state, held)
        self._choices = choices(state, held)
        self._opened = monotonic()

    def compose(self) -> ComposeResult:
        stay = f"Stay paused; {keymap_of(self.app).action('breakpoints').key_text} opens this again"
        rows = [*((choice.key, choice.text) for choice in self._choices), ("esc", stay)]
        with Container(id="question") as box:
            box.border_title = Content.assemble(("Paused before the optimizer step", "bold"))
            yield Static("\n".join(map(printable, self._facts)), markup=False, id="form-notes")
            yield OptionList(*starmap(keyed_option, rows), id="answers", compact=True)

    def on_mount(self) -> None:
        options = self.query_one(OptionList)
        # If the user presses enter at this moment, nothing must happen to the run.
        options.highlighted = len(self._choices)
        options.focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        chosen = self._choices[event.option_index : event.option_index + 1]
        self.dismiss(chosen[0] if chosen else None)

    def action_choose(self, key: str) -> None:
        """Choose the line with this key, if there is one, unless the key was meant for the screen below."""
        chosen = [choice for choice in self._choices if choice.key == key]
        if chosen and monotonic() - self._opened >= SETTLE_S:
            self.dismiss(chosen[0])
