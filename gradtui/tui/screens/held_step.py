"""The dialog that opens when the run is held before an optimizer's step with NaN or Inf: the cause, then choices. UI thread."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import starmap
from time import monotonic
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets.option_list import Option

from gradtui.protocol.vocabulary import HeldStep
from gradtui.run.state.run_state import RunState
from gradtui.tui.actions import keymap_of
from gradtui.tui.requests.held_step import Choice, choices, facts
from gradtui.tui.screens.dialog import ChoiceDialog, keyed_option

SETTLE_S = 0.5
"""Keys that choose have no effect for this long: the dialog opens by itself, while the user may be typing."""


class HeldStepDialog(ChoiceDialog[Choice | None]):
    """Dismissed with a `Choice`, None for staying paused."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(key, f"choose('{key}')", show=False) for key in "slc"),
        Binding("q", "dismiss", show=False),
        Binding("k", "move(-1)", show=False),
        Binding("j", "move(1)", show=False),
    ]

    def __init__(self, state: RunState, held: HeldStep) -> None:
        super().__init__(
            "Paused before the optimizer step", facts(state, held), held.line.directory if held.line is not None else ""
        )
        self._choices = choices(state, held)
        self._opened = monotonic()

    @property
    def answers(self) -> Iterable[Option]:
        stay = f"Stay paused; {keymap_of(self.app).action('breakpoints').key_text} opens this again"
        return starmap(keyed_option, [*((choice.key, choice.text) for choice in self._choices), ("esc", stay)])

    @property
    def first(self) -> int:
        # If the user presses enter at this moment, nothing must happen to the run.
        return len(self._choices)

    def choose(self, index: int) -> None:
        self.dismiss(next(iter(self._choices[index : index + 1]), None))

    def action_choose(self, key: str) -> None:
        """Choose the line with this key, if there is one, unless the key was meant for the screen below."""
        chosen = [choice for choice in self._choices if choice.key == key]
        if chosen and monotonic() - self._opened >= SETTLE_S:
            self.dismiss(chosen[0])
