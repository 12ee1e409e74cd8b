"""Refuse commands that one rank of a distributed run must not carry out alone. Training thread only.

`commands/agreement.py` carries out commands on all ranks at the same step.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from torch import distributed

from gradtui.protocol.commands import (
    Command,
    ForgetState,
    Intervention,
    KeepState,
    Pause,
    PauseAtBadStep,
    RenameState,
    RunSteps,
    RunTo,
    SetBreakpoint,
    SkipStep,
    StopTraining,
    TakeUpFreezes,
    TryChange,
)
from gradtui.run.text import refusals

HOLDS = (Pause, PauseAtBadStep, RunSteps, RunTo, SetBreakpoint)
"""Commands that hold the training thread."""
_UNEQUAL = (PauseAtBadStep, SkipStep, TakeUpFreezes)
"""Commands whose outcome depends on what a rank measures: ranks that agree on them may still do different things."""


def world_size() -> int:
    """Return the number of ranks in the default process group; 1 where there is no group."""
    if not distributed.is_available() or not distributed.is_initialized():
        return 1
    return distributed.get_world_size()


def rank() -> int:
    """Return the number of this process in the default process group; 0 where there is no group."""
    return distributed.get_rank() if world_size() > 1 else 0


def local_count() -> int:
    """Return how many ranks run on this machine, as torchrun and other launchers say; 1 where there is no group."""
    told = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, int(told)) if world_size() > 1 and told.isdecimal() else 1


def objection_to(command: Command) -> str | None:
    """Return why this process must not carry out `command`, None if it may.

    A change on one rank makes the ranks diverge silently. A rank that pauses or stops leaves the others waiting in their
    next collective operation.
    """
    if isinstance(command, HOLDS):
        wants_hold = getattr(command, "on", True)
        return objection_to_hold() if wants_hold else None
    if isinstance(command, StopTraining):
        return _objection(refusals.STOP_OF_ONE)
    if isinstance(command, TryChange):
        return _objection(refusals.TRY_ON_RANKS)
    if isinstance(command, (Intervention, KeepState, ForgetState, RenameState)):
        return _objection(refusals.CHANGE_ON_ALL)
    return None


def objection_to_agreed(command: Command) -> str | None:
    """Return why not even all ranks together may carry out `command` at the same step, None if they may."""
    if isinstance(command, TryChange):
        return _objection(refusals.TRY_ON_RANKS)
    return _objection(refusals.NOT_ON_RANKS) if isinstance(command, _UNEQUAL) else None


def objection_to_schedule(left: Iterable[Command], *, is_agreed: bool) -> str | None:
    """Return why this process must not carry out the commands of a schedule; `is_agreed` says that all ranks have it."""
    objection = objection_to_agreed if is_agreed else objection_to
    return next((each for each in map(objection, left) if each is not None), None)


def objection_to_hold() -> str | None:
    """Return why this process must not hold its training thread, None if it may."""
    return _objection(refusals.PAUSE_OF_ONE)


def _objection(consequence: str) -> str | None:
    count = world_size()
    return refusals.one_of_ranks(count, consequence) if count > 1 else None
