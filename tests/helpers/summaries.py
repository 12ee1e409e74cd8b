"""The summary of a run as its file has it."""

from __future__ import annotations

from typing import Any

from gradtui.protocol.json_objects import from_object, to_object
from gradtui.protocol.run_summary import Finding
from gradtui.records.export.summary import summarise
from gradtui.run.state.run_state import RunState
from gradtui.run.text import report_lines


def summarised(state: RunState, dropped: int = 0) -> dict[str, Any]:
    """Return the summary of a run as JSON data."""
    return to_object(summarise(state, dropped=dropped))


def report_of(state: RunState) -> list[str]:
    """Return the run in sentences, as its summary has them once it has ended."""
    return report_lines(state, summarise(state, dropped=0))


def finding(rule: str, **values: Any) -> Finding:
    """Return a finding of a summary: confirmed, and a warning, unless `values` say otherwise."""
    return from_object(Finding, {"rule": rule, "level": "warning", "status": "confirmed", **values})
