"""Writing down what a person did to a run: a schedule file to do it again, and the same as code. Any thread."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import BinaryIO

from gradtui.export.schedule_file import schedule_text
from gradtui.export.snippet import snippet_text
from gradtui.state.run_state import RunState

WriteFile = Callable[[str, str, Callable[[BinaryIO], object]], str]
"""Makes a new file, given the words in its name, its suffix and what fills it, and returns its path."""


class InterventionFiles:
    """The files of one run's interventions; `write` makes one."""

    def __init__(self, write: WriteFile) -> None:
        self._write = write
        self._written: int | None = None

    def save(self, state: RunState) -> str:
        """Write both files and say where they are, in words. Raises OSError."""
        schedule = self._write(
            "schedule", ".toml", lambda file: file.write(schedule_text(state).encode(errors="replace"))
        )
        code = self._write("schedule", ".py", lambda file: file.write(snippet_text(state).encode(errors="replace")))
        self._written = state.intervention_count
        count = "1 intervention" if state.intervention_count == 1 else f"{state.intervention_count} interventions"
        script = state.started.script if state.started is not None else "SCRIPT"
        again = f"gradtui --schedule {shlex.quote(schedule)} {shlex.quote(script)}"
        return f"{count} written down; to do the same again: {again}; as code: {code}"

    def closing(self, state: RunState) -> str | None:
        """When the run has ended: the same, if a person has done anything since the last time; None if not, or if it fails."""
        # Those of a schedule have ids below zero; they are written down already.
        if state.intervention_count == self._written or all(applied.command.id < 0 for applied in state.interventions):
            return None
        try:
            return self.save(state)
        except OSError:
            return None
