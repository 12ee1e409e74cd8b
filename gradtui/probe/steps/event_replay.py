"""Replay buffered hook events into the `PhaseTracker`. Runs on the training thread.

Most steps have the same events in the same order as the step before. It is then enough to replay the first of them, to note
the phase before each of its events, and to add up the times of all following steps event by event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from gradtui.probe.steps.hook_buffer import BACKWARD, DATA, FORWARD, LOADER, STEP, ZERO_GRAD
from gradtui.probe.steps.phase_tracker import PhaseTracker
from gradtui.protocol.step_times import StepPart
from gradtui.protocol.vocabulary import Phase


def replay(marks: list[int], phases: PhaseTracker) -> list[int]:
    """Replay the buffered hook events [what, when, what, when …] into the phase tracker.

    Returns the moments at which steps ended, in nanoseconds.
    """
    kinds, times = marks[::2], marks[1::2]
    ends: list[int] = []
    at = 0
    while at < len(kinds):
        following = end_of_step(kinds, at)
        step = kinds[at:following]
        before, counts = phases.state, phases.counts
        spent_in, parts = _replay_events(step, times[at:following], phases)
        if step[-1] == -STEP:
            ends.append(times[following - 1])
        if phases.state == before and phases.ended is None:
            entered = {phase: count - counts[phase] for phase, count in phases.counts.items() if count != counts[phase]}
            first, following = following, _behind(kinds, at, following)
            if following > first:
                _add_alike(times[first - 1 : following], spent_in, entered, phases)
                phases.times.went_round(parts, times[first - 1 : following])
                ends += times[first + len(step) - 1 : following : len(step)]
        at = following
    return ends


def end_of_step(kinds: list[int], at: int) -> int:
    """Return the index behind the first end of a step from `at` on; the number of events if no step ends."""
    try:
        return kinds.index(-STEP, at) + 1
    except ValueError:
        return len(kinds)


def _behind(kinds: list[int], begin: int, end: int) -> int:
    """Return the index behind the steps from `end` on that have the same events as the step from `begin` to `end`."""
    step = kinds[begin:end]
    behind = end
    while kinds[behind : behind + len(step)] == step:
        behind += len(step)
    return behind


def _add_alike(times: list[int], spent_in: list[Phase], entered: dict[Phase, int], phases: PhaseTracker) -> None:
    """Add up steps of the same events each, before which `spent_in` were the phases.

    `times` begin with the end of the step before them.
    """
    spent: Counter[Phase] = Counter()
    marks = len(spent_in)
    for index, phase in enumerate(spent_in):
        spent[phase] += sum(times[index + 1 :: marks]) - sum(times[index:-1:marks])
    rounds = (len(times) - 1) // marks
    phases.went_round(times[-1], spent, {phase: rounds * count for phase, count in entered.items()})


def _replay_events(kinds: list[int], times: list[int], phases: PhaseTracker) -> tuple[list[Phase], list[StepPart]]:
    """Replay each event; return the phase, and the part of the step, in which the time before each of them was spent."""
    handlers: dict[int, Callable[[int], None]] = {
        FORWARD: phases.forward_began,
        BACKWARD: phases.on_backward_pre,
        -BACKWARD: partial(phases.on_backward_post, in_step=False),
        STEP: phases.on_step_pre,
        -STEP: phases.on_step_post,
        ZERO_GRAD: partial(phases.interrupt, Phase.ZERO_GRAD),
        -ZERO_GRAD: phases.resume,
        DATA: phases.data_began,
        -DATA: phases.data_ended,
        LOADER: phases.loader_began,
        -LOADER: phases.loader_ended,
    }
    spent_in, parts = [], []
    for kind, now in zip(kinds, times):
        spent_in.append(phases.phase)
        parts.append(phases.times.part)
        handlers[kind](now)
    return spent_in, parts
