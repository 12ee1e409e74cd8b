"""Telling of many steps in one go comes to the same as telling of each mark."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.probe.steps import event_replay
from gradtui.probe.steps.event_replay import replay
from gradtui.probe.steps.hook_buffer import BACKWARD, DATA, FORWARD, STEP, ZERO_GRAD
from gradtui.probe.steps.phase_tracker import PhaseTracker
from gradtui.protocol.vocabulary import Phase

PLAIN = (ZERO_GRAD, -ZERO_GRAD, FORWARD, BACKWARD, -BACKWARD, STEP, -STEP)
ACCUMULATING = (
    DATA,
    FORWARD,
    BACKWARD,
    -BACKWARD,
    DATA,
    FORWARD,
    BACKWARD,
    -BACKWARD,
    STEP,
    -STEP,
    ZERO_GRAD,
    -ZERO_GRAD,
)
TWO_FORWARDS = (FORWARD, FORWARD, ZERO_GRAD, -ZERO_GRAD, BACKWARD, -BACKWARD, STEP, -STEP)
UPDATED_IN_BACKWARD = (FORWARD, BACKWARD, STEP, -STEP, -BACKWARD)
FRAGMENTS = st.sampled_from([(BACKWARD,), (-BACKWARD, STEP), (-STEP,), (ZERO_GRAD,), (DATA,), (FORWARD, BACKWARD)])
STEPS = st.tuples(st.sampled_from([PLAIN, ACCUMULATING, TWO_FORWARDS, UPDATED_IN_BACKWARD]), st.integers(1, 6)).map(
    lambda step_and_times: step_and_times[0] * step_and_times[1]
)


def told(marks: list[int], phases: PhaseTracker) -> object:
    return replay(marks, phases), phases.state, phases.take(10**9)


@given(
    parts=st.lists(FRAGMENTS | STEPS, min_size=1, max_size=6),
    gaps=st.lists(st.integers(0, 10**6), min_size=1, max_size=200),
    cut=st.integers(0, 200),
)
def test_whatever_the_marks_are(parts: list[tuple[int, ...]], gaps: list[int], cut: int) -> None:
    kinds = [kind for part in parts for kind in part]
    times = list(accumulate(gaps[index % len(gaps)] for index in range(len(kinds))))
    marks = [number for pair in zip(kinds, times) for number in pair]
    # In one go, in two, and each by itself.
    at_once, in_two, one_by_one = (PhaseTracker(0) for _ in range(3))
    found = told(marks, at_once)
    index = 2 * (cut % len(kinds))
    first = replay(marks[:index], in_two)
    ends, *rest = told(marks[index:], in_two)  # type: ignore[misc]
    assert (first + ends, *rest) == found
    each = [end for at in range(0, len(marks), 2) for end in replay(marks[at : at + 2], one_by_one)]
    assert (each, one_by_one.state, one_by_one.take(10**9)) == found


def test_similar_steps_are_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one = []
    replay_events = event_replay._replay_events
    monkeypatch.setattr(
        event_replay,
        "_replay_events",
        lambda kinds, times, phases: (one_by_one.append(len(kinds)), replay_events(kinds, times, phases))[1],
    )
    kinds = [FORWARD, BACKWARD, -BACKWARD, STEP, -STEP] + 100 * list(PLAIN)
    marks = [number for time, kind in enumerate(kinds) for number in (kind, time)]
    phases = PhaseTracker(0)
    ends = replay(marks, phases)
    assert one_by_one == [5, 7]
    assert len(ends) == 101
    assert {time.phase: time.count for time in phases.take(len(kinds))}[Phase.ZERO_GRAD] == 100


def test_whoever_wants_to_hear_of_each_phase_does() -> None:
    phases, heard = PhaseTracker(0), []
    phases.listen(heard.append)
    replay([number for time, kind in enumerate(10 * PLAIN) for number in (kind, time)], phases)
    assert heard.count(Phase.OPTIMIZER) == 10
