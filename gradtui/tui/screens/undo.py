"""The dialog of undo, where a state was kept before the latest change: take back the change, or its steps too. UI thread."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import starmap
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets.option_list import Option

from gradtui.tui.requests.requests import Make
from gradtui.tui.requests.undo import STANDS, UndoChoice
from gradtui.tui.screens.dialog import ChoiceDialog, keyed_option


class UndoDialog(ChoiceDialog[Make | None]):
    """Dismissed with the command that the user chooses, None if the user closes it. The key of undo once more undoes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("u", "choose(0)", show=False),
        Binding("r", "choose(1)", show=False),
        Binding("q", "dismiss", show=False),
    ]
    keys = "enter chooses · esc closes"

    def __init__(self, choice: UndoChoice) -> None:
        super().__init__("Undo", (choice.what,))
        self._choice = choice

    @property
    def answers(self) -> Iterable[Option]:
        rows = (("u", "Undo the change; the steps that ran with it stay"), ("r", f"{self._choice.back_text}. {STANDS}"))
        return starmap(keyed_option, rows)

    def choose(self, index: int) -> None:
        self.dismiss((self._choice.undo, self._choice.back)[index])

    action_choose = choose
