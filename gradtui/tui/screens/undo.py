"""The dialog of undo, where a state was kept before the latest change: take back the change, or its steps too. UI thread."""

from __future__ import annotations

from itertools import starmap
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.widgets import OptionList, Static

from gradtui.tui.rendering import printable
from gradtui.tui.requests.requests import Make
from gradtui.tui.requests.undo import STANDS, UndoChoice
from gradtui.tui.screens.dialog import Dialog, keyed_option


class UndoDialog(Dialog[Make | None]):
    """Dismissed with the command that the user chooses, None if the user closes it. The key of undo once more undoes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("u", "choose(0)", show=False),
        Binding("r", "choose(1)", show=False),
        Binding("q", "dismiss", show=False),
    ]

    def __init__(self, choice: UndoChoice) -> None:
        super().__init__()
        self._choice = choice
        self._makes = (choice.undo, choice.back)

    def compose(self) -> ComposeResult:
        rows = (("u", "Undo the change; the steps that ran with it stay"), ("r", f"{self._choice.back_text}. {STANDS}"))
        with Container(id="question") as box:
            box.border_title = Content.assemble(("Undo", "bold"))
            box.border_subtitle = Content("enter chooses · esc closes")
            yield Static(printable(self._choice.what), markup=False, id="form-notes")
            yield OptionList(*starmap(keyed_option, rows), id="answers", compact=True)

    def on_mount(self) -> None:
        super().on_mount()
        options = self.query_one(OptionList)
        options.highlighted = 0
        options.focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_choose(event.option_index)

    def action_choose(self, index: int) -> None:
        """Choose a line."""
        self.dismiss(self._makes[index])
