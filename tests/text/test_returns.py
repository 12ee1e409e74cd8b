"""What a viewer knows of kept states and returns."""

from __future__ import annotations

from helpers.metric_events import metrics_logged

from gradtui.protocol import events as ev
from gradtui.protocol.commands import ReturnToState, SetTrainable
from gradtui.records.export.summary import summarise
from gradtui.run.reducer import apply
from gradtui.run.state.changes.changes import changes
from gradtui.run.state.over_steps.markers import markers, model_breaks
from gradtui.run.state.run_state import RunState
from gradtui.run.text.effects import change_words
from gradtui.run.text.ending import end_rows
from gradtui.run.text.kept_states import kept_rows, return_text
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


def test_kept_states_are_listed_newest_first() -> None:
    state = returned()
    rows = kept_rows(state)
    assert [number for number, _ in rows] == [2, 1]
    newest, first = (text.split() for _, text in rows)
    assert newest[:2] + newest[-3:] == ["step", "40", "before", "a", "change"]
    assert first[:2] + first[-3:] == ["step", "30", "loss", "0.500", "good"]
    apply(state, ev.StateForgotten(6.0, 60, (2,)))
    assert [number for number, _ in kept_rows(state)] == [1]


def test_row_has_newest_validation_metrics() -> None:
    state = RunState()
    apply(state, metrics_logged({"val/acc": {20: 0.5}, "train/acc": {20: 0.7}, "val/loss": {20: 1.25}}))
    apply(state, ev.StateKept(3.0, 30, 1, "command", "good", 3 << 20, 0.01))
    apply(state, metrics_logged({"val/acc": {40: 0.9}}))
    (row,) = (text for _, text in kept_rows(state))
    assert "val/acc 0.500 val/loss 1.25" in row


def test_copy_progress_is_logged_by_tenths() -> None:
    state = RunState()
    for done in (1_000, 1_050, 1_900, 10_000):
        apply(state, ev.CopyProgress(1.0, 5, done, 10_000, "keep"))
    assert [entry.text.partition(";")[0] for entry in state.log] == [
        "keeps a state: 1000 B of 9.8 KiB", "keeps a state: 9.8 KiB of 9.8 KiB"
    ]  # fmt: skip
    assert state.kept.copying is not None
    apply(state, ev.CopyProgress(2.0, 5, 10_000, 10_000, "keep", True))
    assert state.kept.copying is None


def test_endings_say_to_which_state_run_returned() -> None:
    state = RunState()
    freeze = SetTrainable(7, "blocks.0", False)
    for event in (
        ev.StateKept(3.0, 512, 3, "change", "", 3 << 20, 0.01),
        ev.CommandApplied(3.1, 512, freeze, "froze blocks.0: 2 tensors", ()),
        ev.ReturnedToState(5.0, 700, 3, 512, 0.01),
    ):
        apply(state, event)
    words = "returned to step 512 at step 700 (state 3, kept before freezing blocks.0)"
    assert return_text(state.kept.returns[0]) == words
    (row,) = (row for row in end_rows(state) if row.label == "returned")
    assert f"{row.label} {row.text}" == words
    (entry,) = summarise(state, dropped=0).returns
    assert (entry.text, entry.step, entry.to_step, entry.state, entry.complete) == (words, 700, 512, 3, True)
    apply(state, ev.ReturnedToState(6.0, 710, 4, 512, 0.01, ("1 of 9 tensors",), "a NaN"))
    assert return_text(state.kept.returns[1]).endswith("(state 4): a NaN; 1 of 9 tensors differ from it")
    assert summarise(state, dropped=0).return_count == 2


def test_return_marks_change_without_breaking_curves() -> None:
    state = returned()
    (change,) = changes(state)
    assert change_words(change) == "returned to step 30"
    (marker,) = markers(state)
    assert (marker.step, marker.words) == (50, "back to step 30")
    assert model_breaks(state) == []
    assert [each.made.to_step for each in state.kept.returns] == [30]
    assert state.kept.returns[0].kept == state.kept.states[1].kept


def test_returns_of_policies_are_said_unlike_users() -> None:
    state = returned()
    assert policy_lines(state) == []
    apply(state, ev.StateKept(5.5, 55, 3, "finite", "", 3 << 20, 0.01))
    apply(state, ev.ReturnedToState(6.0, 61, 3, 55, 0.01, why="NaN in the loss of step 61, return 1 of 1"))
    ended = ev.ReturnsEnded(7.0, 72, "nan", 1, "NaN in the loss of step 72, after 1 return")
    apply(state, ended)
    said = "--return-at-nan gives up: NaN in the loss of step 72, after 1 return; the run continues without returns"
    assert policy_lines(state) == [
        "1 return to a finite state, the last at step 61 to step 55: NaN in the loss of step 61, return 1 of 1",
        said,
    ]
    assert (state.log[-1].kind, state.log[-1].text) == ("returns", said)
