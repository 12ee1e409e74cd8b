"""Telling of many steps in one go comes to the same as telling of each mark."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.probe import mark_replay
from gradtui.probe.mark_replay import replay
from gradtui.probe.phase_tracker import PhaseTracker
from gradtui.probe.step_marks import BACKWARD, DATA, FORWARD, STEP, ZERO_GRAD
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
    told = replay(marks, phases)
    return told.ends, told.backwards, phases.state, phases.take(10**9)


@given(
    parts=st.lists(FRAGMENTS | STEPS, min_size=1, max_size=6),
    gaps=st.lists(st.integers(0, 10**6), min_size=1, max_size=200),
    cut=st.integers(0, 200),
)
def test_whatever_the_marks_are(parts: list[tuple[int, ...]], gaps: list[int], cut: int) -> None:
    whats = [what for part in parts for what in part]
    times = list(accumulate(gaps[place % len(gaps)] for place in range(len(whats))))
    marks = [number for pair in zip(whats, times) for number in pair]
    # In one go, in two, and each by itself.
    at_once, in_two, one_by_one = (PhaseTracker(0) for _ in range(3))
    found = told(marks, at_once)
    place = 2 * (cut % len(whats))
    first = replay(marks[:place], in_two)
    ends, backwards, *rest = told(marks[place:], in_two)  # type: ignore[misc]
    assert (first.ends + ends, first.backwards + backwards, *rest) == found
    each = [replay(marks[at : at + 2], one_by_one) for at in range(0, len(marks), 2)]
    ends, backwards = [end for part in each for end in part.ends], sum(part.backwards for part in each)
    assert (ends, backwards, one_by_one.state, one_by_one.take(10**9)) == found


def test_steps_like_the_one_before_are_not_told_mark_by_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one = []
    tell = mark_replay._tell
    monkeypatch.setattr(
        mark_replay,
        "_tell",
        lambda whats, times, phases: (one_by_one.append(len(whats)), tell(whats, times, phases))[1],
    )
    whats = [FORWARD, BACKWARD, -BACKWARD, STEP, -STEP] + 100 * list(PLAIN)
    marks = [number for time, what in enumerate(whats) for number in (what, time)]
    phases = PhaseTracker(0)
    told = replay(marks, phases)
    assert one_by_one == [5, 7]
    assert (len(told.ends), told.backwards, told.outlined) == (101, 101, 0)
    assert {time.phase: time.count for time in phases.take(len(whats))}[Phase.ZERO_GRAD] == 100


def test_whoever_wants_to_hear_of_each_phase_does() -> None:
    phases, heard = PhaseTracker(0), []
    phases.ended = heard.append
    replay([number for time, what in enumerate(10 * PLAIN) for number in (what, time)], phases)
    assert heard.count(Phase.OPTIMIZER) == 10


SPENT = {ZERO_GRAD: 5, -ZERO_GRAD: 7, FORWARD: 11, BACKWARD: 40, -BACKWARD: 60, STEP: 3, -STEP: 20}
"""Nanoseconds before each mark of a step."""


def steps_in(full: int, outlined: int, pauses: int = 0) -> tuple[list[int], int]:
    """Marks of so many steps in full, then of so many in outline, with so long a pause before each of these; when they end."""
    marks, now = [], 0
    for number in range(full + outlined):
        now += pauses * (number >= full)
        for what in PLAIN:
            now += SPENT[what]
            if number < full or what in (FORWARD, -STEP):
                marks += [what, now]
    return marks, now


@pytest.mark.parametrize("pause", [0, 1_000])
def test_steps_in_outline_are_made_of_what_the_others_are(pause: int) -> None:
    in_outline = PhaseTracker(0)
    marks, end = steps_in(5, 40, pause)
    told = replay(marks, in_outline)
    assert (len(told.ends), told.backwards, told.outlined) == (45, 45, 40)
    found = {time.phase: (round(time.seconds * 1e9), time.count) for time in in_outline.take(end)}
    # By hand: 45 times what one step has; of the first step's data it is still loading; pauses are for data.
    assert found[Phase.ZERO_GRAD] == (45 * 7, 45)
    assert found[Phase.FORWARD] == (45 * 40, 45)
    assert found[Phase.BACKWARD] == (45 * 60, 45)
    assert found[Phase.OPTIMIZER] == (45 * 20, 45)
    assert found[Phase.OTHER][0] == 45 * 3
    assert found[Phase.DATA][0] + found[Phase.LOAD][0] == 45 * (5 + 11) + 40 * pause
    assert sum(spent for spent, _ in found.values()) == end


def test_longer_steps_in_outline_are_divided_in_the_same_parts() -> None:
    marks, end = steps_in(5, 1)
    marks[-1] += 1230
    phases = PhaseTracker(0)
    replay(marks, phases)
    found = {time.phase: round(time.seconds * 1e9) for time in phases.take(end + 1230)}
    # 123 ns from the forward on: tenfold in the last step.
    assert [found[phase] for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OTHER, Phase.OPTIMIZER)] == [
        spent * 5 + spent * 11 for spent in (40, 60, 3, 20)
    ]


@given(
    gaps=st.lists(st.integers(0, 10**6), min_size=1, max_size=50),
    full=st.integers(0, 4),
    outlined=st.integers(1, 6),
    more=st.sampled_from([(), (FORWARD, BACKWARD, -BACKWARD), (ZERO_GRAD,), PLAIN]),
)
def test_no_step_and_no_time_is_lost_in_outline(
    gaps: list[int], full: int, outlined: int, more: tuple[int, ...]
) -> None:
    whats = [*(full * PLAIN), *(outlined * (FORWARD, -STEP)), *more]
    times = list(accumulate(gaps[place % len(gaps)] for place in range(len(whats))))
    phases = PhaseTracker(0)
    told = replay([number for pair in zip(whats, times) for number in pair], phases)
    assert told.ends == [time for what, time in zip(whats, times) if what == -STEP]
    assert told.backwards == whats.count(-BACKWARD) + outlined
    spent = [round(time.seconds * 1e9) for time in phases.take(times[-1])]
    assert sum(spent) == times[-1]
    assert min(spent) >= 0


def test_a_forward_that_was_marked_twice_in_outline_is_one_step() -> None:
    marks, end = steps_in(5, 3)
    marks[-4:-4] = [FORWARD, marks[-3] - 1]
    told = replay(marks, PhaseTracker(0))
    assert (len(told.ends), told.backwards, told.outlined) == (8, 8, 3)
    assert told.ends[-1] == end


def test_only_steps_with_the_same_marks_say_what_others_are_made_of() -> None:
    def are_alike(whats: tuple[int, ...]) -> bool:
        return replay([number for time, what in enumerate(whats) for number in (what, time)], PhaseTracker(0)).are_alike

    assert are_alike(3 * PLAIN)
    assert not are_alike(5 * (PLAIN + TWO_FORWARDS))
