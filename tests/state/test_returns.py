"""What a viewer knows of kept states and returns."""

from __future__ import annotations

from gradtui.protocol import events as ev
from gradtui.protocol.commands import ReturnToState
from gradtui.run.reducer import apply
from gradtui.run.state.changes import changes
from gradtui.run.state.markers import markers, model_breaks
from gradtui.run.state.run_state import RunState
from gradtui.run.text.effects import change_words
from gradtui.run.text.kept_states import kept_rows
from gradtui.run.text.return_policies import policy_lines


def returned() -> RunState:
    state = RunState()
    apply(state, ev.StepsMeasured(2.9, 30, (ev.StepFigures(30, 0, 0.5),)))
    apply(state, ev.StateKept(3.0, 30, 1, "command", "good", 3 << 20, 0.01))
    apply(state, ev.StateKept(4.0, 40, 2, "change", "", 3 << 20, 0.01))
    apply(state, ev.ReturnedToState(5.0, 50, 1, 30, 0.01))
    text = "returned to step 30: 9 tensors and the optimizers are equal to the bit, in 10.0 ms"
    apply(state, ev.CommandApplied(5.0, 50, ReturnToState(7, state=1), text, ()))
    return state


def test_kept_states_are_listed_with_step_size_loss_and_reason_the_newest_first() -> None:
    state = returned()
    rows = kept_rows(state)
    assert [number for number, _ in rows] == [2, 1]
    newest, first = (text.split() for _, text in rows)
    assert newest[:2] + newest[-3:] == ["step", "40", "before", "a", "change"]
    assert first[:2] + first[-3:] == ["step", "30", "loss", "0.500", "good"]
    apply(state, ev.StateForgotten(6.0, 60, (2,)))
    assert [number for number, _ in kept_rows(state)] == [1]


def test_a_return_is_a_change_and_a_mark_but_no_break_of_the_curves() -> None:
    state = returned()
    (change,) = changes(state)
    assert change_words(change) == "returned to step 30"
    (marker,) = markers(state)
    assert (marker.step, marker.words) == (50, "back to step 30")
    assert model_breaks(state) == []
    assert [each.made.to_step for each in state.kept.returns] == [30]
    assert state.kept.returns[0].kept == state.kept.states[1].kept


def test_returns_of_policies_and_their_end_are_said_and_returns_of_the_user_are_not() -> None:
    state = returned()
    assert policy_lines(state) == []
    apply(state, ev.StateKept(5.5, 55, 3, "finite", "", 3 << 20, 0.01))
    apply(state, ev.ReturnedToState(6.0, 61, 3, 55, 0.01, why="NaN in the loss of step 61, return 1 of 1"))
    ended = ev.ReturnsEnded(7.0, 72, "nan", 1, "NaN in the loss of step 72, after 1 return")
    apply(state, ended)
    said = "--return-at-nan gives up: NaN in the loss of step 72, after 1 return; the run goes on without returns"
    assert policy_lines(state) == [
        "1 return to a finite state, the last at step 61 to step 55: NaN in the loss of step 61, return 1 of 1",
        said,
    ]
    assert (state.log[-1].kind, state.log[-1].text) == ("returns", said)
