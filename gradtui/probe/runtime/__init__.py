"""How gradtui's code runs inside the script's process.

This package owns the set of installed hooks and the isolation of their failures, the run's clock, the sampling schedule, the
measurement of gradtui's own overhead, and the result types of commands.

The overhead shown is the time that hooks measure themselves, plus an estimate of what they cannot measure: for each hook, a
multiple of the recent median time of an empty hook. What the first step and later listings of models took is setting up, and
counts in no step.
"""

from gradtui.probe.runtime import ranks
from gradtui.probe.runtime.by_identity import ByIdentity
from gradtui.probe.runtime.common_steps import CheckSchedule
from gradtui.probe.runtime.context import ProbeOptions, RunClock
from gradtui.probe.runtime.failures import MAX_FAILURES
from gradtui.probe.runtime.forked_children import call_in_forked_children
from gradtui.probe.runtime.hook_set import HookSet, alone
from gradtui.probe.runtime.outcome import (
    AnsweredLater,
    CommandRefused,
    CommandResult,
    Handler,
    Hold,
    NothingToDo,
    RunStopped,
    TargetGone,
)
from gradtui.probe.runtime.overhead import OverheadMeter
from gradtui.probe.runtime.reading_interval import ReadingInterval
from gradtui.probe.runtime.sampling_schedule import SamplingSchedule, StepTime, power_of_two

__all__ = [
    "MAX_FAILURES",
    "AnsweredLater",
    "ByIdentity",
    "CheckSchedule",
    "CommandRefused",
    "CommandResult",
    "Handler",
    "Hold",
    "HookSet",
    "NothingToDo",
    "OverheadMeter",
    "ProbeOptions",
    "ReadingInterval",
    "RunClock",
    "RunStopped",
    "SamplingSchedule",
    "StepTime",
    "TargetGone",
    "alone",
    "call_in_forked_children",
    "power_of_two",
    "ranks",
]
