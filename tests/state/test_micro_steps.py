"""What had accumulated after each micro-step: which step is shown, and that it is bounded."""

from __future__ import annotations

from gradtui.protocol import events as ev
from gradtui.protocol.commands import FollowMicroSteps
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.run.state.series import MAX_MICRO_STEPS as MAX
from gradtui.run.state.series import MicroStepNorms


def after(*told: tuple[int, int, float]) -> MicroStepNorms:
    norms = MicroStepNorms()
    for step, number, total in told:
        norms.take(ev.MicroStepMeasured(1.0, step, number, total))
    return norms


def test_first_step_shows_live_then_finished() -> None:
    assert after().last() == (0, [])
    assert after((1, 1, 0.5)).last() == (1, [0.5])
    assert after((1, 1, 0.5), (1, 2, 0.75)).last() == (1, [0.5, 0.75])
    assert after((1, 1, 0.5), (1, 2, 0.75), (2, 1, 0.25)).last() == (1, [0.5, 0.75])
    assert after((1, 1, 0.5), (2, 1, 0.25), (2, 2, 0.375), (3, 1, 0.125)).last() == (2, [0.25, 0.375])


def test_applied_step_is_over_without_next() -> None:
    norms = after((1, 1, 0.5), (2, 1, 0.25), (2, 2, 0.375))
    norms.applied(1)
    assert norms.last() == (1, [0.5])
    norms.applied(2)
    assert norms.last() == (2, [0.25, 0.375])


def test_skipped_step_is_followed_by_same_number() -> None:
    assert after((5, 1, 8.0), (5, 2, 16.0), (5, 1, 0.5), (5, 2, 0.75), (6, 1, 0.25)).last() == (5, [0.5, 0.75])


def test_step_of_very_many_micro_steps_keeps_first() -> None:
    norms = after(*((1, number, float(number)) for number in range(1, MAX + 50)), (2, 1, 0.5))
    assert norms.last() == (1, [float(number) for number in range(1, MAX + 1)])


def test_they_are_followed_from_answer_to_command_on() -> None:
    state = RunState()
    assert not state.micro_norms.on
    apply(state, ev.CommandApplied(1.0, 3, FollowMicroSteps(1, True), "follow", ()))
    assert state.micro_norms.on
    assert state.log[-1].text == "follow"
    apply(state, ev.CommandApplied(2.0, 9, FollowMicroSteps(2, False), "no longer", ()))
    assert not state.micro_norms.on
