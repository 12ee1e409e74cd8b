"""The dialog of the action `leave`: let training run on, stop it after a step, kill the process, or stay. UI thread."""

from __future__ import annotations

from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from gradtui.protocol.commands import Resume, StopTraining
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import RunStatus, run_status
from gradtui.tui.screens.dialog import Dialog, keyed_option

Answer = Literal["stop", "leave", "kill"]
_ANSWERS: dict[str, Answer] = {"stop": "stop", "leave": "leave", "kill": "kill"}

_KILL = ("kill", "K", "Kill the process at once: nothing is saved")
_KILL_ASKED = ("kill", "K", "Press K again to kill the process")
_STOP = ("stop", "s", "Stop training after this step")
_STAY = ("stay", "esc", "Stay")
_OPTIONS: tuple[tuple[str, str, str], ...] = (
    ("leave", "l", "Leave; training continues. To return: gradtui attach"),
    _STOP,
    _KILL,
    _STAY,
)
_OPTIONS_ATTACHED = (("leave", "l", "Leave; the run stays as it is. Back: gradtui attach"), _STOP, _STAY)
_OPTIONS_AT_END = (("leave", "l", "Leave the screen"), _STAY)


def commands_on_leaving(answer: Answer, state: RunState, *, is_first: bool) -> list[type[StopTraining | Resume]]:
    """Return what the run gets when the user leaves: without the screen it was started with, no key resumes a paused run."""
    is_held = run_status(state) not in (RunStatus.RUNNING, RunStatus.LOADING, RunStatus.RESUMING)
    return [StopTraining] if answer == "stop" else [Resume] if is_held and is_first else []


class LeaveDialog(Dialog[Answer | None]):
    """Dismissed with an `Answer`, None for staying. To kill takes two presses; a viewer in another process cannot.

    Args:
        is_first: whether this is the screen that the run was started with.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "dismiss('stop')", "stop", show=False),
        Binding("l", "dismiss('leave')", "leave", show=False),
        Binding("K", "kill", "kill", show=False),
        Binding("q,c", "dismiss", "stay", show=False),
        Binding("k", "move(-1)", show=False),
        Binding("j", "move(1)", show=False),
    ]

    def __init__(self, is_first: bool = True) -> None:
        super().__init__()
        self._choices = _OPTIONS if is_first else _OPTIONS_ATTACHED
        self._kill_asked = False

    def compose(self) -> ComposeResult:
        with self.box("Leave gradtui?"):
            yield OptionList(*map(_option, self._choices), compact=True, id="answers")

    def on_mount(self) -> None:
        self._options.focus()

    @property
    def _options(self) -> OptionList:
        return self.query_one(OptionList)

    def run_ended(self) -> None:
        """Show that the run has ended while the dialog is open: what would end it is removed."""
        self.query_one("#question", Container).border_title = Content.assemble(("The run has ended. Leave?", "bold"))
        options = self._options
        stays = options.highlighted == len(self._choices) - 1
        options.clear_options()
        options.add_options(map(_option, _OPTIONS_AT_END))
        # If the user presses enter at this moment, "Stay" must not have turned into "Leave".
        options.highlighted = len(_OPTIONS_AT_END) - 1 if stays else 0

    def action_kill(self) -> None:
        """Kill the process at the second press; at the first, ask for it."""
        if self._kill_asked:
            self.dismiss("kill")
        elif _KILL in self._choices and self._options.option_count == len(_OPTIONS):
            self._options.highlighted = _OPTIONS.index(_KILL)
            self._ask_to_kill(asked=True)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if self._kill_asked and event.option.id != "kill":
            self._ask_to_kill(asked=False)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        if event.option.id == "kill":
            self.action_kill()
        else:
            self.dismiss(_ANSWERS.get(event.option.id or ""))

    def _ask_to_kill(self, *, asked: bool) -> None:
        self._kill_asked = asked
        if self._options.option_count == len(_OPTIONS):
            self._options.replace_option_prompt("kill", _option(_KILL_ASKED if asked else _KILL).prompt)


def _option(row: tuple[str, str, str]) -> Option:
    answer, key, text = row
    return keyed_option(key, text, answer)
