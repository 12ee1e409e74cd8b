"""The summary of a run as its file has it."""

from __future__ import annotations

from typing import Any

from gradtui.export.summary import summarise
from gradtui.protocol.json_objects import to_object
from gradtui.state.run_state import RunState


def summarised(state: RunState, dropped: int = 0) -> dict[str, Any]:
    """Return the summary of a run as JSON data."""
    return to_object(summarise(state, dropped=dropped))
