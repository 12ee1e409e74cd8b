"""Every moment of a run belongs to exactly one phase, whatever happens and in whatever order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.probe.steps.phase_tracker import PhaseTracker
from gradtui.protocol.vocabulary import Phase

HAPPENINGS: dict[str, Callable[[PhaseTracker, int], None]] = {
    "forward_began": lambda t, now: t.forward_began(now),
    "eval_began": lambda t, now: t.interrupt(Phase.EVAL, now),
    "eval_ended": lambda t, now: t.resume(now),
    "on_backward_pre": lambda t, now: t.on_backward_pre(now),
    "on_backward_post": lambda t, now: t.on_backward_post(now, in_step=False),
    "backward_ended_in_step": lambda t, now: t.on_backward_post(now, in_step=True),
    "grad_began": lambda t, now: t.interrupt(Phase.BACKWARD, now),
    "grad_ended": lambda t, now: t.resume(now),
    "on_step_pre": lambda t, now: t.on_step_pre(now),
    "on_step_post": lambda t, now: t.on_step_post(now),
    "steps_lost": lambda t, now: t.steps_open(0),
    "on_zero_grad_pre": lambda t, now: t.interrupt(Phase.ZERO_GRAD, now),
    "on_zero_grad_post": lambda t, now: t.resume(now),
    "data_began": lambda t, now: t.data_began(now),
}


def play(*names: str) -> tuple[PhaseTracker, list[str]]:
    """One happening every 10 ns; returns the phases that ended, in order."""
    tracker, left = PhaseTracker(0), []
    tracker.listen(lambda phase: left.append(phase.value))
    for moment, name in enumerate(names, start=1):
        HAPPENINGS[name](tracker, 10 * moment)
    return tracker, left


def nanoseconds(tracker: PhaseTracker, now: int) -> dict[str, int]:
    return {time.phase.value: round(time.seconds * 1e9) for time in tracker.take(now)}


@given(
    happenings=st.lists(st.tuples(st.sampled_from(sorted(HAPPENINGS)), st.integers(0, 10**9)), max_size=80),
    takes=st.sets(st.integers(0, 79)),
)
def test_phases_add_up_to_time_that_went_by(happenings: list[tuple[str, int]], takes: set[int]) -> None:
    tracker, now = PhaseTracker(0), 0
    seconds, counts = 0.0, 0
    for index, (name, pause) in enumerate(happenings):
        now += pause
        before = tracker.phase
        HAPPENINGS[name](tracker, now)
        assert isinstance(tracker.phase, Phase)
        if index in takes:
            for time in tracker.take(now):
                assert time.seconds >= 0
                assert time.count >= 0
                seconds += time.seconds
                counts += time.count
        assert before in Phase
    seconds += sum(time.seconds for time in tracker.take(now + 5))
    assert seconds * 1e9 == pytest.approx(now + 5, abs=1)


@given(st.lists(st.sampled_from(sorted(HAPPENINGS)), max_size=60))
def test_any_past_is_forgotten_once_training_goes_on(names: list[str]) -> None:
    """A wrong guess about the past (an exception somewhere) is put right by the next whole step."""
    tracker, _ = play(*names)
    tracker.steps_open(0)
    step = [
        ("forward_began", Phase.FORWARD),
        ("on_backward_pre", Phase.BACKWARD),
        ("on_backward_post", Phase.OTHER),
        ("on_step_pre", Phase.OPTIMIZER),
        ("on_step_post", Phase.DATA),
        ("forward_began", Phase.FORWARD),
    ]
    for moment, (name, phase) in enumerate(step, start=1000):
        HAPPENINGS[name](tracker, 10 * moment)
        assert tracker.phase is phase


def test_a_plain_step() -> None:
    tracker, left = play(
        "forward_began",
        "on_backward_pre",
        "on_backward_post",
        "on_step_pre",
        "on_step_post",
        "on_zero_grad_pre",
        "on_zero_grad_post",
    )
    assert left == ["load", "forward", "backward", "other", "optimizer", "data", "zero_grad"]
    assert nanoseconds(tracker, 80) == {
        "load": 10, "forward": 10, "backward": 10, "other": 10, "optimizer": 10, "data": 20, "zero_grad": 10,
    }  # fmt: skip


def test_two_forwards_in_a_row_are_one() -> None:
    tracker, _ = play("forward_began", "forward_began", "on_backward_pre")
    assert {time.phase: time.count for time in tracker.take(40)} == {Phase.LOAD: 1, Phase.FORWARD: 1, Phase.BACKWARD: 1}


def test_evaluation_before_training_ends_loading() -> None:
    _, left = play("eval_began", "eval_ended", "forward_began")
    assert left == ["load", "eval", "data"]


def test_evaluation_in_middle_of_forward_gives_forward_back() -> None:
    _, left = play("forward_began", "eval_began", "eval_ended", "on_backward_pre")
    assert left == ["load", "forward", "eval", "forward"]


def test_a_closure_within_a_step() -> None:
    """LBFGS: forward and backward inside the step, which is an optimizer's own in between."""
    _, left = play(
        "on_step_pre", "on_zero_grad_pre", "on_zero_grad_post", "forward_began", "on_backward_pre", "backward_ended_in_step",
        "forward_began", "on_backward_pre", "backward_ended_in_step", "on_step_post",
    )  # fmt: skip
    assert left == [
        "load", "optimizer", "zero_grad", "optimizer", "forward", "backward", "optimizer", "forward", "backward", "optimizer",
    ]  # fmt: skip


def test_a_step_within_backward_gives_the_backward_back() -> None:
    _, left = play(
        "forward_began", "on_backward_pre", "on_step_pre", "on_step_post", "on_backward_post", "forward_began"
    )
    assert left == ["load", "forward", "backward", "optimizer", "backward", "other"]


def test_grad_within_a_forward_gives_the_forward_back() -> None:
    _, left = play("forward_began", "grad_began", "grad_ended", "on_backward_pre")
    assert left == ["load", "forward", "backward", "forward"]


def test_loader_asked_before_first_forward_is_still_loading() -> None:
    tracker, _ = play("data_began")
    assert tracker.phase is Phase.LOAD


def test_evaluation_time_returns_to_its_forward() -> None:
    tracker, _ = play("eval_began", "eval_ended")
    tracker.evaluation_was_training(10)
    assert nanoseconds(tracker, 20) == {"load": 10, "forward": 10}
    assert {time.phase.value: time.count for time in tracker.take(20)} == {}


def test_taking_leaves_nothing_behind() -> None:
    tracker, _ = play("forward_began")
    tracker.take(20)
    assert tracker.take(20) == ()
    assert nanoseconds(tracker, 25) == {"forward": 5}


def test_a_pause_belongs_to_no_phase() -> None:
    tracker = PhaseTracker(0)
    tracker.on_step_pre(1_000)
    tracker.on_step_post(3_000)
    tracker.pause_began(4_000)
    assert {time.phase: round(time.seconds * 1e9) for time in tracker.take(9_000)} == {
        Phase.LOAD: 1_000, Phase.OPTIMIZER: 2_000, Phase.DATA: 1_000,
    }  # fmt: skip
    tracker.pause_ended(20_000)
    tracker.forward_began(20_500)
    assert {time.phase: round(time.seconds * 1e9) for time in tracker.take(21_000)} == {
        Phase.DATA: 500, Phase.FORWARD: 500,
    }  # fmt: skip
