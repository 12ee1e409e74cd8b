"""How forecasts of changes are compared with what was measured."""

from __future__ import annotations

from dataclasses import replace

from helpers.summaries import report_of, summarised

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.effects import Effect, StepMemory
from gradtui.run.reducer import apply
from gradtui.run.state.forecasts.forecast_score import Score, compared, scores
from gradtui.run.state.parts.prediction import Prediction
from gradtui.run.state.run_state import RunState
from gradtui.run.text.ending import end_rows
from gradtui.run.text.forecast import forecast_error_words

BEFORE = StepMemory(10, 5_000, 4_000, 1_000, 400)
AFTER = StepMemory(12, 4_000, 3_700, 800, 100)
EXACT = Prediction(-200, -300, 0, -1_100, True)


def changed(*made: tuple[Prediction, Effect]) -> RunState:
    state = RunState()
    for number, (prediction, effect) in enumerate(made):
        apply(state, ev.CommandApplied(1.0, 5, SetTrainable(number, "a", False), f"froze a{number}", ()))
        state.forecast_of[number] = prediction
        apply(state, ev.ReceiptTaken(2.0, 12, number, "", True, effect))
    return state


def test_error_is_share_of_what_was_measured() -> None:
    wrong = replace(EXACT, activations=-100)
    state = changed((EXACT, Effect(BEFORE, AFTER)), (wrong, Effect(BEFORE, AFTER)))
    # 0 and 100 bytes of 200 and 200; 100 and 100 of 1,000 and 1,000.
    assert scores(state) == {"activations": Score(2, 0.25), "gradients": Score(2, 0.0), "peak": Score(2, 0.1)}
    words = "off by 25.0 % in activations, 0.0 % in gradients, 10.0 % in the peak (2 changes)"
    assert forecast_error_words(scores(state)) == [words]
    assert ("forecasts", words) in [(row.label, row.text) for row in end_rows(state)]
    state.step = 12
    assert f"forecasts {words}" in report_of(state)
    assert summarised(state)["forecast_errors"]["peak"] == {"changes": 2, "error": 0.1}


def test_unmeasured_single_change_has_no_score() -> None:
    cpu = Effect(replace(BEFORE, peak=None), replace(AFTER, peak=None))
    state = changed((EXACT, cpu), (EXACT, Effect(BEFORE, AFTER, others=1)), (EXACT, Effect(BEFORE)))
    assert [dict(each.measured) for each in compared(state)] == [
        {"activations": -200, "gradients": -300, "peak": None},
        {"activations": None, "gradients": None, "peak": None},
        {"activations": None, "gradients": None, "peak": None},
    ]
    assert scores(state) == {"activations": Score(1, 0.0), "gradients": Score(1, 0.0)}


def test_an_error_where_nothing_changed_is_no_share() -> None:
    state = changed((EXACT, Effect(BEFORE, replace(BEFORE, step=12))))
    assert scores(state) == {}
    assert scores(changed((Prediction(0, 0, 0, 0, True), Effect(BEFORE, BEFORE))))["peak"] == Score(1, 0.0)
    assert forecast_error_words(scores(RunState())) == []


def test_closing_line_names_largest_change_beside_its_forecast() -> None:
    state = changed((EXACT, Effect(BEFORE, AFTER)))
    (row,) = (row.text for row in end_rows(state) if row.label == "changed")
    assert row.endswith("froze a0; peak 4.9 → 3.9 KiB (forecast about 3.8)")


def test_undo_keeps_or_returns_optimizer_state() -> None:
    unfreeze = Prediction(10, 20, 40, 65, True)
    # Without the gradients and the activations, and with the state, which is there in each phase.
    assert unfreeze.undone() == Prediction(-10, -20, 0, 40 - 65, True)
    assert unfreeze.undone().total == -20
    dropping = Prediction(-10, -20, -40, None, True)
    assert dropping.undone() == Prediction(10, 20, 40, None, True)
    assert dropping.total == -60
    unknown = Prediction(None, 20, None, 5, False)
    assert unknown.undone() == Prediction(None, -20, None, None, False)
    assert unknown.total is None
