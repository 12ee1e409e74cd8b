"""The dialog "Freeze…": selects what trains by a preset, a glob or an expression, and shows the outcome. UI thread."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import capitalized, plural
from gradtui.tui.rendering import printable
from gradtui.tui.requests import freeze_choice
from gradtui.tui.requests.freeze_choice import MODES, Choice, Presets, RowsChoice
from gradtui.tui.screens.dialog import Dialog

_NAME_WIDTH = 18
_NOTHING_CHOSEN = "Nothing is chosen yet: ↓ goes to the presets"


class FreezeDialog(Dialog[Choice | RowsChoice | None]):
    """Dismissed with a choice, None for nothing. Typed text takes precedence over the highlighted preset.

    No preset is highlighted at first: enter does nothing until the user has chosen.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "mode(1)", show=False, priority=True),
        Binding("shift+tab", "mode(-1)", show=False, priority=True),
        Binding("up", "move(-1)", show=False, priority=True),
        Binding("down", "move(1)", show=False, priority=True),
    ]

    def __init__(self, state: RunState) -> None:
        super().__init__()
        self._state = state
        self._mode = 0
        self._offered = Presets(state)
        self._presets: list[Choice] = []

    def compose(self) -> ComposeResult:
        with self.box("Freeze…", "tab changes what is done · enter does it · esc closes", id="freezing"):
            yield Static(id="freeze-mode")
            yield Input(
                placeholder="or type a path, a glob (*.bias), re:expression, or a path with --rows 0:32000",
                compact=True,
                id="selection",
            )
            yield OptionList(id="presets", compact=True)
            yield Static(id="freeze-result")

    def on_mount(self) -> None:
        self.query_one(Input).cursor_blink = False
        self.query_one(OptionList).can_focus = False
        self.query_one(Input).focus()
        self.update()

    @property
    def mode(self) -> str:
        """What to do with the selection, one of `MODES`."""
        return MODES[self._mode]

    @property
    def chosen(self) -> Choice | RowsChoice | str:
        """The choice that enter would confirm, or a sentence that says why there is none."""
        text = self.query_one(Input).value
        if text.strip():
            return freeze_choice.typed(self._state, self.mode, text)
        index = self.query_one(OptionList).highlighted
        return self._presets[index] if index is not None and index < len(self._presets) else _NOTHING_CHOSEN

    def update(self) -> None:
        """Recount the presets after a change of the mode or of what trains."""
        options = self.query_one(OptionList)
        index = options.highlighted
        self._presets = self._offered.choices(self.mode)
        options.set_options(Option(_preset_text(choice)) for choice in self._presets)
        options.highlighted = min(index, len(self._presets) - 1) if index is not None and self._presets else None
        words = [(f" {mode} ", "bold reverse" if mode == self.mode else "dim") for mode in MODES]
        self.query_one("#freeze-mode", Static).update(Content.assemble(*words))
        self._show_result()

    def _show_result(self) -> None:
        chosen, now = self.chosen, freeze_choice.before(self._state)
        if chosen == _NOTHING_CHOSEN:
            text = Content.styled(f"{chosen}. What trains now: {now}.", "$foreground-muted")
        elif isinstance(chosen, str):
            text = Content.styled(printable(chosen), "$text-warning")
        elif isinstance(chosen, RowsChoice):
            text = Content(capitalized(printable(chosen.words)))
        else:
            what = f"{chosen.mode} {printable(chosen.selection)} ({plural(chosen.selected, 'tensor')})"
            text = Content(f"{what}: {chosen.change}. Leaves {chosen.left}; now {now}.")
            text = text if chosen.lacks is None else text.stylize("$text-warning")
        self.query_one("#freeze-result", Static).update(text)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._show_result()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        chosen = self.chosen
        if not isinstance(chosen, str):
            self.dismiss(chosen)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        self._show_result()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Confirm a preset on a click."""
        event.stop()
        self.dismiss(self._presets[event.option_index])

    def action_mode(self, by: int) -> None:
        self._mode = (self._mode + by) % len(MODES)
        self.update()

    def action_move(self, by: int) -> None:
        """Highlight another preset and clear the typed text."""
        self.query_one(Input).value = ""
        super().action_move(by)


def _preset_text(choice: Choice) -> Content:
    """Return two lines: the selection with its names, and what would change."""
    left = choice.left.removesuffix(" parameters")
    return Content.assemble(
        (f" {choice.selection:<{_NAME_WIDTH}}", "bold"), f"leaves {left} · {choice.names}\n",
        (f"   {choice.change}", "$foreground-muted"),
    )  # fmt: skip
