"""What marks mean: the phases they begin and end, told to the `PhaseTracker`. Runs on the training thread.

Most steps are like the one before: the same marks in the same order. Then it is enough to tell the first of them, to learn
which phase the time before each of its marks belongs to, and to add up the times of all that follow, mark by mark. Steps that
were marked in outline get the phases of those that were marked in full just before.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from gradtui.probe.phase_tracker import PhaseTracker
from gradtui.probe.step_marks import BACKWARD, FORWARD, STEP, ZERO_GRAD
from gradtui.protocol.vocabulary import Phase

_OUTLINE = [FORWARD, -STEP]
_AT_LEAST = [FORWARD, BACKWARD, -BACKWARD, STEP, -STEP]
"""What has happened in a step that was marked in outline."""


@dataclass(frozen=True)
class Told:
    """What marks have told.

    Attributes:
        ends: the moments at which steps ended.
        backwards: how many backward passes did.
        outlined: how many of the steps were marked in outline.
        are_alike: whether steps that were marked in full followed each other with the same marks.
    """

    ends: list[int]
    backwards: int
    outlined: int
    are_alike: bool


@dataclass(frozen=True)
class _Usual:
    """What steps were made of that were marked in full.

    Attributes:
        steps: how many they were.
        before: nanoseconds in each phase from the end of a step to the next one's first forward.
        after: nanoseconds in each phase from there to its end.
        entered: how often one step enters each phase.
    """

    steps: int
    before: Counter[Phase]
    after: Counter[Phase]
    entered: dict[Phase, int]


def replay(marks: list[int], phases: PhaseTracker) -> Told:
    """Tell the phases what the marks [what, when, what, when …] say."""
    whats, times = marks[::2], marks[1::2]
    ends: list[int] = []
    outlined = at = 0
    usual: _Usual | None = None
    while at < len(whats):
        following = _end_of_step(whats, at)
        step = whats[at:following]
        if step == _OUTLINE:
            following = _behind(whats, at, following)
            _tell_outlined(times[at:following], usual, phases)
            ends += times[at + 1 : following : len(_OUTLINE)]
            outlined += (following - at) // len(_OUTLINE)
        elif set(step) == set(_OUTLINE):
            # A Ctrl+C came as the forward was marked, and it was called again.
            _tell_outlined([times[at], times[following - 1]], usual, phases)
            ends.append(times[following - 1])
            outlined += 1
        else:
            before, counts = phases.state, phases.counts
            spent_in = _tell(step, times[at:following], phases)
            if step[-1] == -STEP:
                ends.append(times[following - 1])
            if phases.state == before and phases.ended is None:
                entered = {
                    phase: count - counts[phase] for phase, count in phases.counts.items() if count != counts[phase]
                }
                first, following = following, _behind(whats, at, following)
                if following > first:
                    usual = _go_round(step, times[first - 1 : following], spent_in, entered, phases)
                    ends += times[first + len(step) - 1 : following : len(step)]
        at = following
    return Told(ends, whats.count(-BACKWARD) + outlined, outlined, usual is not None)


def _end_of_step(whats: list[int], at: int) -> int:
    """The place behind the step that is going on at `at`."""
    try:
        return whats.index(-STEP, at) + 1
    except ValueError:
        return len(whats)


def _behind(whats: list[int], begin: int, end: int) -> int:
    """The place behind the steps from `end` on that are marked as the one from `begin` to `end` was."""
    step = whats[begin:end]
    behind = end
    while whats[behind : behind + len(step)] == step:
        behind += len(step)
    return behind


def _go_round(
    step: list[int], times: list[int], spent_in: list[Phase], entered: dict[Phase, int], phases: PhaseTracker
) -> _Usual:
    """Tell of steps with the same marks. `times` begin with the end of the step before them."""
    forward = step.index(FORWARD) if FORWARD in step else len(step)
    before: Counter[Phase] = Counter()
    after: Counter[Phase] = Counter()
    for place, phase in enumerate(spent_in):
        nanoseconds = sum(times[place + 1 :: len(step)]) - sum(times[place : -1 : len(step)])
        (before if place <= forward else after)[phase] += nanoseconds
    rounds = (len(times) - 1) // len(step)
    phases.went_round(times[-1], before + after, {phase: rounds * count for phase, count in entered.items()})
    return _Usual(rounds, before, after, entered)


def _tell_outlined(times: list[int], usual: _Usual | None, phases: PhaseTracker) -> None:
    """Tell of steps of which `times` has the beginning of the forward and the end of each.

    What clears gradients takes its usual time; the rest of the time before the forward is for data, as a script's pauses are.
    """
    if usual is None or phases.ended is not None:
        for began, ended in zip(times[::2], times[1::2]):
            _tell(_AT_LEAST, [began] + 4 * [ended], phases)
        return
    steps = len(times) // 2
    after = sum(times[1::2]) - sum(times[::2])
    before = times[-1] - phases.since - after
    spent: Counter[Phase] = Counter()
    for phase, nanoseconds in usual.before.items():
        if phase is not Phase.DATA:
            spent[phase] = min(before - spent.total(), nanoseconds * steps // usual.steps)
    spent[Phase.DATA] = before - spent.total()
    of_all = max(1, usual.after.total())
    shares = {phase: after * nanoseconds // of_all for phase, nanoseconds in usual.after.items()}
    spent.update(shares)
    spent[Phase.FORWARD] += after - sum(shares.values())
    phases.went_round(times[-1], spent, {phase: steps * count for phase, count in usual.entered.items()})


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
