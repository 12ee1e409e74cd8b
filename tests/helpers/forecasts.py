"""Questions about a change that the state of a run can ask the planner."""

from __future__ import annotations

from gradtui.protocol.forecasts import Change, ForecastAsked
from gradtui.run.state.forecasts.forecast import forecast_change, question
from gradtui.run.state.run_state import RunState

NO_CHANGE = Change()


def asked_of(state: RunState, change: Change = NO_CHANGE) -> ForecastAsked:
    """Return the question about a change, with what its answer needs of the run. Insists on that there is one."""
    asked = question(state, forecast_change(state, change))
    assert asked is not None
    return asked
