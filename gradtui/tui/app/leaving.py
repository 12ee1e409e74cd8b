"""How the user leaves a run, and what becomes of it then. UI thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from textual.app import App

from gradtui.protocol.commands import Command
from gradtui.run.state.run_state import RunState

if TYPE_CHECKING:
    from gradtui.tui.screens.leave import Answer

Role = Literal["first", "attached", "replay"]
"""Whose screen it is: that of the training process, of another process, or of a recording."""


class Leaving:
    """Asks how to leave, and exits the app: its return value says how.

    Args:
        app: the app.
        state: the state of the run.
        submit: sends a command.
        kill: ends the process from outside.
        role: whose screen it is.
    """

    def __init__(
        self,
        app: App[str],
        state: RunState,
        submit: Callable[[Callable[[int], Command]], None],
        kill: Callable[[], None],
        role: Role,
    ) -> None:
        self._app, self._state, self._submit, self._kill, self._role = app, state, submit, kill, role
        self.is_killed = False
        """The user has asked to kill the process."""

    def ask(self) -> None:
        """Ask how to leave. A run that has ended is left at once."""
        from gradtui.tui.screens.leave import LeaveDialog

        if self._state.ended is not None or self._role == "replay":
            self._app.exit("ended")
        elif not isinstance(self._app.screen, LeaveDialog):
            self._app.push_screen(LeaveDialog(self._role == "first"), self._answered)

    def _answered(self, answer: Answer | None) -> None:
        from gradtui.tui.screens.leave import commands_on_leaving

        if answer is not None and self._state.ended is not None:
            self._app.exit("ended")
        elif answer == "kill":
            self.is_killed = True
            what = "The process gets SIGTERM, and SIGKILL if it has not ended in 5 seconds."
            self._app.notify(what, severity="warning")
            self._kill()
        elif answer is not None:
            for command in commands_on_leaving(answer, self._state, is_first=self._role == "first"):
                self._submit(command)
            self._app.exit(answer)
