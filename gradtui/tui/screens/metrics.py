"""The dialog that chooses metrics by their names. UI thread."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from gradtui.run.state.parts.metrics import Metric
from gradtui.run.state.run_state import RunState
from gradtui.tui.plots.curves import short
from gradtui.tui.plots.plot_state import MetricChoice
from gradtui.tui.rendering import elide, pad, printable
from gradtui.tui.screens.dialog import Dialog

_NAME, _VALUE = 32, 9


class MetricDialog(Dialog[MetricChoice | None]):
    """Dismissed with the choice of the user, None if the user closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False, priority=True),
        Binding("down", "move(1)", show=False, priority=True),
    ]

    def __init__(self, state: RunState) -> None:
        super().__init__()
        self._metrics = state.metrics
        self._choices: list[MetricChoice] = []

    def compose(self) -> ComposeResult:
        with Container(id="question") as box:
            box.border_title = Content.assemble(("Metrics", "bold"))
            box.border_subtitle = Content("type to search · ↑↓ · enter shows · esc closes")
            yield Input(placeholder="part of a name; val, acc for either", compact=True, id="selection")
            yield OptionList(id="answers", compact=True)

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one(OptionList).can_focus = False
        self.query_one(Input).cursor_blink = False
        self.query_one(Input).focus()
        self._list("")

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._list(event.value.strip())

    def _list(self, words: str) -> None:
        found = self._metrics.matching(words) if words else [*self._metrics.by_name.values()]
        self._choices = [MetricChoice(name=metric.name) for metric in found]
        lines = [_line(metric) for metric in found]
        if words and len(found) > 1:
            self._choices.insert(0, MetricChoice(words=words))
            lines.insert(0, f" all {len(found)} of these")
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options([Option(Content(line)) for line in lines])
        options.highlighted = 0 if lines else None

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._answer(self.query_one(OptionList).highlighted)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._answer(event.option_index)

    def _answer(self, index: int | None) -> None:
        if index is not None and index < len(self._choices):
            self.dismiss(self._choices[index])


def _line(metric: Metric) -> str:
    name = elide(printable(metric.name), _NAME)
    return f" {pad(name, _NAME)} {pad(short(metric.last), _VALUE)} {metric.side or metric.source}"
