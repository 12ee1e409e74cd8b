"""The user's commands, applied by the training thread between two steps: a package for each thing that a command is about.

`dispatcher.py` lists the handlers, `answers.py` answers each command, and `rank_answer.py` says what one of several ranks would
answer. `undo.py` undoes the latest change on request, and `in_order` there applies several changes as one: if one fails, it
undoes those before it.

Of the packages, `boundary` takes the commands and holds the run. `freezes`, `checkpointing`, `param_groups`, `returns`, `tries`
and `optimizer_steps` change the run; `schedule` repeats such changes at given steps; `receipts` measures what they have done;
`files` saves something. They import each other downwards only (`pyproject.toml`).
"""

from gradtui.probe.commands.dispatcher import CommandDispatcher
from gradtui.probe.commands.freezes.freeze_registry import FreezeRegistry
from gradtui.probe.commands.freezes.saved_freezes import Saved
from gradtui.probe.commands.schedule.awaited_times import AwaitedTimes
from gradtui.probe.commands.schedule.replayed_schedule import ReplayedSchedule

__all__ = [
    "AwaitedTimes",
    "CommandDispatcher",
    "FreezeRegistry",
    "ReplayedSchedule",
    "Saved",
]
