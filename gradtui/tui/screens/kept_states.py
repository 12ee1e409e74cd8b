"""The dialog of kept states: a list, and keys to return to one, keep another one, rename, save and forget one. UI thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from gradtui.protocol.commands import Command, ForgetState, KeepState, RenameState, ReturnToState, SaveState
from gradtui.run.state.run_state import RunState
from gradtui.run.text.kept_states import WHAT_A_RETURN_DOES, copy_cost_text, kept_rows
from gradtui.run.text.units import capitalized
from gradtui.tui.rendering import printable
from gradtui.tui.requests.requests import Make
from gradtui.tui.screens.dialog import Dialog

_NONE = "No state is kept yet. Before each change gradtui keeps one by itself, if a copy is small and fast."
_ASKS = {
    "rename": "Name of state {}:",
    "save": "File for state {} (nothing: one beside the log):",
}


class KeptStatesDialog(Dialog[Make | None]):
    """Dismissed with the command that the user chooses, None if the user closes it. A return asks for a second press."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("k", "keep", show=False),
        Binding("d,delete", "forget", show=False),
        Binding("r", "ask('rename')", show=False),
        Binding("w", "ask('save')", show=False),
        Binding("K,q", "dismiss", show=False),
    ]

    def __init__(self, state: RunState) -> None:
        super().__init__()
        self._rows = kept_rows(state)
        self._names = {number: info.kept.name for number, info in state.kept.states.items()}
        self._cost = copy_cost_text(state)
        self._asks: int | None = None
        """The index whose second press returns."""
        self._entry: Callable[[str], Make] | None = None
        """Makes the command from what the user types."""
        self._line = Horizontal(classes="form-line")
        self._line.display = False
        self._note = Static("", markup=False, id="form-wrong")

    def compose(self) -> ComposeResult:
        uses = "enter returns · r renames · w saves to a file · d forgets · " if self._rows else ""
        with self.box("Kept states", f"{uses}k keeps one · esc closes"):
            notes = WHAT_A_RETURN_DOES if self._rows else _NONE
            if self._cost:
                notes += f" {capitalized(self._cost)}."
            yield Static(notes, markup=False, id="form-notes")
            yield OptionList(
                *(Option(Content(f" {printable(text)}")) for _, text in self._rows), id="answers", compact=True
            )
            with self._line:
                yield Input(compact=True)
            yield self._note

    def on_mount(self) -> None:
        options = self.query_one(OptionList)
        options.display = bool(self._rows)
        if self._rows:
            options.highlighted = 0
            options.focus()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        if event.option_index != self._asks:
            self._asks = None
            self._note.update("")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if self._asks == event.option_index:
            number = self._rows[event.option_index][0]
            self.dismiss(lambda id_: ReturnToState(id_, state=number))
            return
        self._asks = event.option_index
        self._note.update("Press enter again to return to it.")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self._entry is not None:
            self.dismiss(self._entry(event.value.strip()))

    def action_keep(self) -> None:
        """Keep the state of the run now."""
        self.dismiss(KeepState)

    def action_forget(self) -> None:
        """Forget the highlighted state."""
        number = self._highlighted
        if number is not None:
            self.dismiss(lambda id_: ForgetState(id_, number))

    def action_ask(self, what: str) -> None:
        """Ask for the name, or for the file, of the highlighted state."""
        number = self._highlighted
        if number is None:
            return

        def make(text: str) -> Make:
            kind: Callable[[int, int, str], Command] = RenameState if what == "rename" else SaveState
            return lambda id_: kind(id_, number, text)

        self._entry = make
        self._note.update(_ASKS[what].format(number))
        entry = self.query_one(Input)
        entry.value = self._names.get(number, "") if what == "rename" else ""
        self._line.display = True
        entry.focus()

    @property
    def _highlighted(self) -> int | None:
        """The number of the state under the cursor."""
        index = self.query_one(OptionList).highlighted
        return self._rows[index][0] if index is not None and index < len(self._rows) else None
