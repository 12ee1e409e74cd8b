"""The dialog of the action `leave`: stop training, let it run on without the screen, or stay. UI thread."""

from __future__ import annotations

from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from gradtui.tui.screens.dialog import Dialog

Answer = Literal["stop", "leave"]
_ANSWERS: dict[str, Answer] = {"stop": "stop", "leave": "leave"}

_OPTIONS: tuple[tuple[str, str, str], ...] = (
    ("leave", "l", "Leave the screen; training continues in the terminal"),
    ("stop", "s", "Stop training at the next step boundary"),
    ("stay", "esc", "Stay"),
)
_OPTIONS_AT_END = (("leave", "l", "Leave the screen"), _OPTIONS[-1])


class LeaveDialog(Dialog[Answer | None]):
    """Dismissed with an `Answer`, None for staying."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "dismiss('stop')", "stop", show=False),
        Binding("l", "dismiss('leave')", "leave", show=False),
        Binding("q,c", "dismiss", "stay", show=False),
        Binding("k", "move(-1)", show=False),
        Binding("j", "move(1)", show=False),
    ]

    def compose(self) -> ComposeResult:
        with Container(id="question") as box:
            box.border_title = Content.assemble(("Leave gradtui?", "bold"))
            yield OptionList(*_options(_OPTIONS), compact=True, id="answers")

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()

    def run_ended(self) -> None:
        """Show that the run has ended while the dialog is open: the option to stop is removed."""
        self.query_one("#question", Container).border_title = Content.assemble(("The run has ended. Leave?", "bold"))
        options = self.query_one(OptionList)
        stays = options.highlighted == len(_OPTIONS) - 1
        options.clear_options()
        options.add_options(_options(_OPTIONS_AT_END))
        # If the user presses enter at this moment, "Stay" must not have turned into "Leave".
        options.highlighted = len(_OPTIONS_AT_END) - 1 if stays else 0

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(_ANSWERS.get(event.option.id or ""))


def _options(rows: tuple[tuple[str, str, str], ...]) -> list[Option]:
    return [Option(Content.assemble((f"{key:>3}  ", "bold"), text), id=answer) for answer, key, text in rows]
