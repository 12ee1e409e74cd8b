"""The dialog at the end of a try: what was measured, and a key for each side to continue with. UI thread."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from gradtui.protocol.commands import EndTry
from gradtui.protocol.tries import ChangeTried
from gradtui.run.text.tries import side_name, tried_lines
from gradtui.tui.rendering import printable
from gradtui.tui.requests.requests import Make
from gradtui.tui.screens.dialog import Dialog


class TryDialog(Dialog[Make | None]):
    """Dismissed with the command that continues with a side, None if the run is to stay held."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("y,q", "dismiss", show=False)]

    def __init__(self, tried: ChangeTried) -> None:
        super().__init__()
        self._tried = tried

    def compose(self) -> ComposeResult:
        tried = self._tried
        lines = [*tried_lines(tried), *tried.notes]
        with Container(id="question") as box:
            box.border_title = Content.assemble(("With which side does the run continue?", "bold"))
            box.border_subtitle = Content("enter continues · esc stays paused, y asks again")
            yield Static("\n".join(map(printable, lines)), markup=False, id="form-notes")
            sides = (Option(Content(f" {printable(side_name(each))}")) for each in tried.sides if not each.ended)
            yield OptionList(*sides, id="answers", compact=True)

    def on_mount(self) -> None:
        super().on_mount()
        options = self.query_one(OptionList)
        options.highlighted = 0
        options.focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        whole = [at for at, each in enumerate(self._tried.sides) if not each.ended]
        side = whole[event.option_index]
        self.dismiss(lambda number: EndTry(number, side))
