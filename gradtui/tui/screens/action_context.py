"""What the actions of the screens work with. UI thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradtui.state.run_state import RunState
from gradtui.tui.charts.pictures import Pictures
from gradtui.tui.plots.watched_parameters import WatchedParameters
from gradtui.tui.requests.requests import Make, Refusal, command_for

if TYPE_CHECKING:
    from gradtui.tui.plots.export_files import WriteFile


@dataclass(frozen=True)
class ActionContext:
    """The run behind the screens.

    Args:
        state: the state of the run.
        send: sends a command, or notifies the user why there is none.
        pictures: draws the curves.
        watched: the parameters that the probe measures in detail for the plots.
        write_file: creates a file beside the run's log; None if there is no directory for files.
        save_schedule: writes the schedule of the run's changes to a file and returns a sentence that says where; raises
            OSError. None if there is no directory for files.
    """

    state: RunState
    send: Callable[[Make | Refusal], None]
    pictures: Pictures
    watched: WatchedParameters
    write_file: WriteFile | None = None
    save_schedule: Callable[[RunState], str] | None = None

    def request(self, name: str, row: int | None = None) -> None:
        """Send the command of a request in `REQUESTS`, or notify the user why there is none."""
        self.send(command_for(name, self.state, row))
