"""A small form dialog: enter submits the values, escape closes it, and input errors appear below the fields. UI thread."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal
from textual.content import Content
from textual.widgets import Input, Static

from gradtui.run.state.changes.objections import objection_to
from gradtui.run.text.units import capitalized
from gradtui.tui.requests.question import Question
from gradtui.tui.requests.requests import Make, Refusal
from gradtui.tui.screens.dialog import Dialog


class FormDialog(Dialog[Make | None]):
    """A form for one question. Dismissed with the command it makes, None if the user closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
    ]
    AUTO_FOCUS = None

    def __init__(self, question: Question) -> None:
        super().__init__()
        self._question = question
        self._inputs = [Input(field.value, placeholder=field.hint, compact=True) for field in question.fields]
        self._wrong = Static("", markup=False, id="form-wrong")

    def compose(self) -> ComposeResult:
        question = self._question
        with Container(id="question") as box:
            box.border_title = Content.assemble((question.title, "bold"))
            box.border_subtitle = Content("enter sends it · esc closes")
            if question.notes:
                yield Static("\n".join(question.notes), markup=False, id="form-notes")
            width = max(len(field.label) for field in question.fields) + 2
            for field, line in zip(question.fields, self._inputs):
                line.cursor_blink = False
                with Horizontal(classes="form-line"):
                    label = Static(field.label, markup=False, classes="form-label")
                    label.styles.width = width
                    yield label
                    yield line
            yield self._wrong

    def on_mount(self) -> None:
        # Focus the first empty field: the user has to fill it in.
        next((line for line in self._inputs if not line.value), self._inputs[0]).focus()

    def on_input_changed(self) -> None:
        self._wrong.update("")

    def on_input_submitted(self) -> None:
        made = self._question.answer([line.value for line in self._inputs])
        if isinstance(made, Refusal):
            self._wrong.update(made.reason)
        elif (objection := objection_to(made(0))) is not None:
            self._wrong.update(f"{capitalized(objection)}.")
        else:
            self.dismiss(made)
