"""What a command would change, without sending it: for other processes that steer a run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gradtui.protocol.codec import to_words
from gradtui.protocol.commands import Command, KeepState, SetRowsTrainable, SetTrainable, TrainOnly
from gradtui.protocol.forecasts import ForecastAsked, ForecastMade
from gradtui.records.export.forecast_report import forecast_document, forecast_lines
from gradtui.remote.live.expected_refusal import expected_refusal
from gradtui.remote.live.planned_choices import PlannedChange, change_of_command, choice_of, figures_now, question_of
from gradtui.run.state.forecasts.forecast import Forecast
from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree.selection import NothingSelected
from gradtui.run.text import command_text, would_train
from gradtui.run.text.forecast import forecast_notes, statistics_clauses
from gradtui.run.text.kept_states import copy_cost_text

if TYPE_CHECKING:
    from gradtui.planner import Forecaster

Look = Callable[[Callable[[RunState], Any]], Any]


class Previews:
    """Forecasts what commands would change. Each call runs on a thread of its own, and one at a time asks the planner.

    Args:
        look: applies a function to the state of the run, on the thread that owns it.
    """

    def __init__(self, look: Look) -> None:
        self._look = look
        self._forecaster: Forecaster | None = None
        self._lock = threading.Lock()

    def of(self, command: Command) -> dict[str, Any] | None:
        """Return what a command would change, as JSON; None if the run does not answer now.

        `refused` is why the run would refuse it, as far as its state tells: what only the training thread can check is checked
        at the step boundary. `plans` is empty for a command that changes neither what trains nor what is checkpointed.
        """
        first = self._look(lambda state: _first(state, command))
        if first is None:
            return None
        refused, planned = first
        answer = self._answer(planned[1]) if planned is not None and planned[1] is not None else None
        if planned is not None and answer is not None:
            # The rules leave out what the planner knows: it is asked once, and the state may be another one by now.
            change = planned[0]
            return self._look(lambda state: _document(state, command, refused, change, answer))  # type: ignore[no-any-return]
        change = planned[0] if planned is not None else None
        return self._look(lambda state: _document(state, command, refused, change, None))  # type: ignore[no-any-return]

    def _answer(self, asked: ForecastAsked) -> ForecastMade | None:
        with self._lock:
            if self._forecaster is None:
                # It imports torch, as the script has done if there is a question.
                from gradtui.planner import Forecaster

                self._forecaster = Forecaster()
            try:
                return self._forecaster.with_peak(self._forecaster.answer(asked), asked)
            except Exception:  # noqa: BLE001 - then the figures are estimates by the rules
                return None


def _first(state: RunState, command: Command) -> tuple[str | None, tuple[PlannedChange, ForecastAsked | None] | None]:
    planned = _planned(state, command)
    return expected_refusal(state, command, planned[0] if planned is not None else None), planned


def _planned(state: RunState, command: Command) -> tuple[PlannedChange, ForecastAsked | None] | None:
    try:
        change = change_of_command(state, command)
    except NothingSelected:
        return None
    return (change, question_of(state, change, None)) if change is not None else None


_LINES_BEFORE = 5
"""The lines of `forecast_lines` before those of the first choice."""


def _document(
    state: RunState, command: Command, refused: str | None, change: PlannedChange | None, answer: ForecastMade | None
) -> dict[str, Any]:
    # A live run keeps what its allocator has reserved.
    now = replace(figures_now(state), reserved=None)
    choices = [choice_of(change, now, answer, state)] if change is not None and refused is None else []
    by_rules = change.forecast if change is not None else None
    # Those that say what is now are in the lines of the choice too.
    lines = (
        [line for line in forecast_lines(state.step, now, choices) if line.strip()][_LINES_BEFORE:] if choices else []
    )
    return {
        "command": to_words(command),
        "text": command_text(command),
        "refused": refused,
        "stops": _paths(state, by_rules, "stops") if isinstance(command, (SetTrainable, TrainOnly)) else [],
        "starts": _paths(state, by_rules, "starts") if isinstance(command, (SetTrainable, TrainOnly)) else [],
        **forecast_document(now, choices, notes=forecast_notes(state)),
        "lines": [
            *_rows(state, command, refused),
            *_copy_cost(state, command),
            *(statistics_clauses(by_rules) if by_rules is not None and refused is None else ()),
            *lines,
        ],
    }


def _copy_cost(state: RunState, command: Command) -> list[str]:
    words = copy_cost_text(state, into_file=bool(command.file)) if isinstance(command, KeepState) else ""
    return [words] if words else []


def _rows(state: RunState, command: Command, refused: str | None) -> list[str]:
    return [would_train(state.tree, command)] if isinstance(command, SetRowsTrainable) and refused is None else []


def _paths(state: RunState, by_rules: Forecast | None, name: str) -> list[str]:
    indexes = getattr(by_rules, name) if by_rules is not None else ()
    return [state.tree.parameters[index].path for index in indexes if index < len(state.tree.parameters)]
