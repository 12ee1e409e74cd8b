"""What marks mean: the phases they begin and end, told to the `PhaseTracker`. Runs on the training thread.

Most steps are like the one before: the same marks in the same order. Then it is enough to tell the first of them, to learn
which phase the time before each of its marks belongs to, and to add up the times of all that follow, mark by mark.
"""

from __future__ import annotations

from collections import Counter

from gradtui.probe.phase_tracker import PhaseTracker
from gradtui.probe.step_marks import BACKWARD, FORWARD, STEP, ZERO_GRAD
from gradtui.protocol.vocabulary import Phase


def replay(marks: list[int], phases: PhaseTracker) -> tuple[list[int], int]:
    """Tell the phases what the marks [what, when, what, when …] say.

    Returns the moments at which steps ended, and how many backward passes did.
    """
    whats, times = marks[::2], marks[1::2]
    ends: list[int] = []
    at = 0
    while at < len(whats):
        following = _end_of_step(whats, at)
        before, counts = phases.state, phases.counts
        spent_in = _tell(whats[at:following], times[at:following], phases)
        if whats[following - 1] == -STEP:
            ends.append(times[following - 1])
        if phases.state == before and phases.ended is None:
            entered = {phase: count - counts[phase] for phase, count in phases.counts.items() if count != counts[phase]}
            length, first = following - at, following
            following = _go_round(whats, times, at, first, spent_in, entered, phases)
            ends += times[first + length - 1 : following : length]
        at = following
    return ends, whats.count(-BACKWARD)


def _end_of_step(whats: list[int], at: int) -> int:
    """The place behind the step that is going on at `at`."""
    try:
        return whats.index(-STEP, at) + 1
    except ValueError:
        return len(whats)


def _go_round(
    whats: list[int],
    times: list[int],
    begin: int,
    end: int,
    spent_in: list[Phase],
    entered: dict[Phase, int],
    phases: PhaseTracker,
) -> int:
    """Tell of the steps from `end` on that are marked as the one from `begin` to `end` was; the place behind them."""
    step = whats[begin:end]
    length = end - begin
    behind = end
    while whats[behind : behind + length] == step:
        behind += length
    if behind > end:
        nanoseconds: Counter[Phase] = Counter()
        for place, phase in enumerate(spent_in, end):
            nanoseconds[phase] += sum(times[place:behind:length]) - sum(times[place - 1 : behind - 1 : length])
        rounds = (behind - end) // length
        phases.went_round(times[behind - 1], nanoseconds, {phase: rounds * count for phase, count in entered.items()})
    return behind


def _tell(whats: list[int], times: list[int], phases: PhaseTracker) -> list[Phase]:
    """Tell each mark; the phase in which the time before each of them was spent."""
    spent_in = []
    for what, now in zip(whats, times):
        spent_in.append(phases.phase)
        if what == FORWARD:
            phases.forward_began(now)
        elif what == BACKWARD:
            phases.backward_began(now)
        elif what == -BACKWARD:
            phases.backward_ended(now, in_step=False)
        elif what == STEP:
            phases.step_began(now)
        elif what == -STEP:
            phases.step_ended(now)
        elif what == ZERO_GRAD:
            phases.zero_grad_began(now)
        elif what == -ZERO_GRAD:
            phases.zero_grad_ended(now)
        else:
            phases.data_began(now)
    return spent_in
