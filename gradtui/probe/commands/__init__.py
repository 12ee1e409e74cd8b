"""The user's commands, applied by the training thread between two steps.

This package owns the freeze with all its consequences, every other change of the run, the reasons for refusing one, undo, and
schedules.
"""

from gradtui.probe.commands.dispatcher import CommandDispatcher
from gradtui.probe.commands.freeze_registry import FreezeRegistry
from gradtui.probe.commands.replayed_schedule import ReplayedSchedule

__all__ = [
    "CommandDispatcher",
    "FreezeRegistry",
    "ReplayedSchedule",
]
