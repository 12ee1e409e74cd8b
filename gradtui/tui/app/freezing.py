"""The freeze dialog and the export of the schedule. UI thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.app import App

from gradtui.state.run_state import RunState
from gradtui.tui.requests import requests

if TYPE_CHECKING:
    from gradtui.tui.requests.freeze_choice import Choice


class FreezingApp(App[str]):
    """The part of the app with the actions `freeze` and `export_schedule`."""

    run_state: RunState
    save_schedule: Callable[[RunState], str] | None = None
    """Writes the schedule of the run's changes to a file and returns a sentence that says where.

    Raises OSError. None if there is no directory for files.
    """

    def request(self, made: requests.Make | requests.Refusal) -> None:
        """Send a command, or notify the user why it was refused."""
        raise NotImplementedError

    def action_freeze(self) -> None:
        from gradtui.tui.screens.freeze import FreezeDialog

        objection = requests.refusal_of("model", self.run_state)
        if objection is not None:
            self.request(objection)
        else:
            self.push_screen(FreezeDialog(self.run_state), self._freeze)

    def _freeze(self, chosen: Choice | None) -> None:
        if chosen is not None:
            self.request(requests.refusal_of("model", self.run_state) or chosen.command)

    def action_export_schedule(self) -> None:
        self.notify(_export(self.run_state, self.save_schedule), timeout=15, markup=False)


def _export(state: RunState, save: Callable[[RunState], str] | None) -> str:
    """Write the changes made to the run to a file; return the sentence to show to the user."""
    if not state.intervention_count:
        return "Nothing has been done to this run yet: there is nothing to write down."
    try:
        return save(state) if save is not None else "There is no place to write files to."
    except OSError as error:
        return f"It could not be written: {error.strerror or error}"
