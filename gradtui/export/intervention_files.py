"""Writing down what a person did to a run: a schedule file to do it again, and the same as code. Any thread."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO

from gradtui.export.schedule_file import schedule_text
from gradtui.export.snippet import snippet_text
from gradtui.state.run_state import RunState

WriteTogether = Callable[[str, Mapping[str, Callable[[BinaryIO], object]]], list[str]]
"""Makes new files of one number, given the word in their names and what fills each by its suffix; returns their paths."""


class InterventionFiles:
    """The files of one run's interventions; `words` are those of the command line that say what is run."""

    def __init__(self, write: WriteTogether, words: Sequence[str]) -> None:
        self._write = write
        self._run = shlex.join(words)
        self._written: int | None = None

    def save(self, state: RunState) -> str:
        """Write both files, since a person asks for them, and say where they are, in words. Raises OSError."""
        return self._saved(state, "saved-schedule")

    def _saved(self, state: RunState, kind: str) -> str:
        texts = {".toml": schedule_text(state, self._run), ".py": snippet_text(state)}
        schedule, code = self._write(kind, {suffix: _writer(text) for suffix, text in texts.items()})
        self._written = state.intervention_count
        count = "1 intervention" if state.intervention_count == 1 else f"{state.intervention_count} interventions"
        again = f"gradtui --schedule {shlex.quote(schedule)} {self._run}"
        return f"{count} written down; to do the same again: {again}; as code: {code}"

    def closing(self, state: RunState) -> str | None:
        """When the run has ended: the same, if a person has done anything since the last time, or why it fails; None if not."""
        # Those of a schedule have ids below zero; they are written down already.
        if state.intervention_count == self._written or all(applied.command.id < 0 for applied in state.interventions):
            return None
        try:
            # By this name the oldest of many are removed.
            return self._saved(state, "schedule")
        except OSError as error:
            return f"what was done to the run could not be written down: {error.strerror or error}"


def _writer(text: str) -> Callable[[BinaryIO], object]:
    return lambda file: file.write(text.encode(errors="replace"))
