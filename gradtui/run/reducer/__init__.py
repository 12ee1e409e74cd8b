"""Apply events to the state of a run.

This package owns one function per event that updates `RunState`, and the log entries that events write.
"""

from gradtui.run.reducer.reducer import apply

__all__ = ["apply"]
