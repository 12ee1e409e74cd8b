"""Write the user's changes of a run as a schedule file, and as two lines of Python that apply it. Any thread."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, BinaryIO

from gradtui.export.schedule_file import schedule_text
from gradtui.state.run_state import RunState
from gradtui.text import plural

if TYPE_CHECKING:
    from gradtui.runner.run_files import RunFiles

_SCRIPT = """\
# Put these lines where the model and its optimizers have been made. Several models: {{"name": model, ...}}.
import gradtui

gradtui.apply_schedule({schedule}, model, optimizer)
"""


class InterventionFiles:
    """The files of one run's interventions; `words` are those of the command line that say what is run."""

    def __init__(self, files: RunFiles, words: Sequence[str]) -> None:
        self._files = files
        self._run = shlex.join(words)
        self._written: int | None = None

    def save(self, state: RunState, kind: str = "saved-schedule") -> str:
        """Write both files, and return a sentence that says where they are. Raises OSError."""
        schedule = self._files.write(kind, ".toml", _writer(schedule_text(state, self._run)))
        script = self._files.write_beside(schedule, ".py", _writer(_SCRIPT.format(schedule=json.dumps(schedule))))
        self._written = state.intervention_count
        count = plural(state.intervention_count, "intervention")
        again = f"gradtui --schedule {shlex.quote(schedule)} {self._run}"
        return f"{count} written down; to do the same again: {again}; as code: {script}"

    def closing(self, state: RunState) -> str | None:
        """When the run has ended: the same, if a person has done anything since the last time, or why it fails; None if not."""
        # Commands of a schedule have ids below zero; they are in a file already.
        if state.intervention_count == self._written or all(applied.command.id < 0 for applied in state.interventions):
            return None
        try:
            # By this name the oldest of many are removed.
            return self.save(state, "schedule")
        except OSError as error:
            return f"what was done to the run could not be written down: {error.strerror or error}"


def _writer(text: str) -> Callable[[BinaryIO], object]:
    return lambda file: file.write(text.encode(errors="replace"))
