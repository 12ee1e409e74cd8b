"""The dialog at the end of a try: what was measured, and a key for each side to continue with. UI thread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets.option_list import Option

from gradtui.protocol.commands import EndTry
from gradtui.protocol.tries import ChangeTried
from gradtui.run.text.tries import side_name, tried_lines
from gradtui.tui.rendering import printable
from gradtui.tui.requests.requests import Make
from gradtui.tui.screens.dialog import ChoiceDialog


class TryDialog(ChoiceDialog[Make | None]):
    """Dismissed with the command that continues with a side, None if the run is to stay held."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("y,q", "dismiss", show=False)]
    keys = "enter continues · esc stays paused, y asks again"

    def __init__(self, tried: ChangeTried) -> None:
        super().__init__("With which side does the run continue?", (*tried_lines(tried), *tried.notes))
        self._whole = {at: each for at, each in enumerate(tried.sides) if not each.ended}

    @property
    def answers(self) -> Iterable[Option]:
        return (Option(Content(f" {printable(side_name(each))}")) for each in self._whole.values())

    def choose(self, index: int) -> None:
        side = [*self._whole][index]
        self.dismiss(lambda number: EndTry(number, side))
