"""Read what the script logs, from the calls that it makes of its loggers.

This package owns the list of these calls, the values in their arguments, and where in training each was logged. The wrappers
around the calls are in `hooks/loggers.py`.
"""

from gradtui.probe.metrics.logged_metrics import LoggedMetrics
from gradtui.probe.metrics.logging_calls import LOGGING_CALLS, LoggingCall
from gradtui.probe.metrics.plugin_calls import plugin_calls

__all__ = ["LOGGING_CALLS", "LoggedMetrics", "LoggingCall", "plugin_calls"]
