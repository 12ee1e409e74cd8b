"""Forecasts of what a change of the run will cost.

This package owns the repetition of a recorded forward with other parameters trainable or other modules checkpointed. It knows
torch, and neither the probe nor a screen: it works on recorded plain data, on any thread, and touches nothing of the run.
"""

from gradtui.planner.batch_fit import LargestBatch, NoBatchDimensionError, NoForecastError
from gradtui.planner.forecast_thread import ForecastThread
from gradtui.planner.forecaster import Forecaster
from gradtui.planner.replay import Plan, Replay, Replayed

__all__ = [
    "ForecastThread",
    "Forecaster",
    "LargestBatch",
    "NoBatchDimensionError",
    "NoForecastError",
    "Plan",
    "Replay",
    "Replayed",
]
