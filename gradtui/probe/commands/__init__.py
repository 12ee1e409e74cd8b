"""The user's commands, applied by the training thread between two steps.

This package owns the freeze with all its consequences, every other change of the run, the reasons for refusing one, undo, and
schedules.

`boundary.py` holds the run. `Pause`, `Resume`, `RunSteps` and `RunTo` replace each other; breakpoints stay set until they are
reached or cleared. The probe compares steps and learning rates at each boundary, loss and norm when their measurement
arrives. The viewer compares memory and findings, and sends `Pause`.

`PauseAtBadStep` holds the run in the pre-hook of the step that would apply NaN or Inf. Only then may commands be applied
between backward and step: those that hold or release the run, `SetGroup` and `SkipStep`. A step is skipped by hiding the
gradients from it, so that the script's call, its schedulers and its own hooks run as ever.

`row_freezes.py` freezes rows of a parameter while the others train; `probe/frozen/frozen_rows.py` holds them.

`UndoStack` (`undo.py`) undoes the latest change on request, and `in_order` there applies several changes as one: if one
fails, it undoes those before it.
"""

from gradtui.probe.commands.awaited_times import AwaitedTimes
from gradtui.probe.commands.dispatcher import CommandDispatcher
from gradtui.probe.commands.freeze_registry import FreezeRegistry
from gradtui.probe.commands.replayed_schedule import ReplayedSchedule
from gradtui.probe.commands.saved_freezes import Saved

__all__ = [
    "AwaitedTimes",
    "CommandDispatcher",
    "FreezeRegistry",
    "ReplayedSchedule",
    "Saved",
]
