"""What is said of the forecast duration of a step, and what a receipt compares."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.fakes import Node, found
from helpers.states import state_after
from helpers.summaries import summarised
from helpers.timed_steps import times

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.effects import Effect, TimeChange
from gradtui.protocol.forecasts import Change, ForecastMade, TimeForecast, duration_ratio
from gradtui.records.export.forecast_report import UNKNOWN, Choice, Figures, forecast_document, forecast_lines
from gradtui.remote.live.planned_choices import PlannedChange, choice_of
from gradtui.run.reducer import apply
from gradtui.run.state.forecasts.forecast import forecast_change
from gradtui.run.state.parts.prediction import Prediction
from gradtui.run.state.run_state import RunState
from gradtui.run.state.time.module_times import measured_times
from gradtui.run.text.effects import effect_text
from gradtui.run.text.forecast import predicted_time

TIME = TimeForecast(0.196, 0.152, 0.012)
MODEL = found(Node("Net", "Net", (), (Node("a", "Linear", (("weight", (2, 2)),)),)))
TIMED = ev.ModuleTimesMeasured(2.0, 50, (3_000_000,) * 2, (0, 3_000_000), (5_000_000,) * 2, (0, 5_000_000), 4, 1e-6)


@pytest.mark.parametrize(
    ("time", "words"),
    [
        (TIME, "about 152 ms ± 12.0 (now 196)"),
        (TimeForecast(2.5, 1.25, 0.5), "about 1.25 s ± 0.50 (now 2.50)"),
        (TimeForecast(4e-4, 8e-4, 1e-5), "about 800 µs ± 10.0 (now 400)"),
    ],
)
def test_forecast_has_unit_of_step_as_it_is(time: TimeForecast, words: str) -> None:
    assert predicted_time(time) == words


def test_ratio_is_of_seconds_or_work() -> None:
    assert duration_ratio(TIME, 0.5) == pytest.approx(152 / 196)
    assert duration_ratio(None, 0.5) == 0.5
    assert duration_ratio(None, None) is None


def test_receipt_compares_forecast_with_what_was_measured() -> None:
    """A step took 98 ms before the change, half of what it took when the forecast was made: so does the forecast."""
    effect = Effect(time=TimeChange(0.098, 0.080, 0.004))
    made = Prediction(None, None, None, None, True, TIME)
    assert effect_text(effect, made) == "step 98.0 → 80.0 ms ± 4.00 (forecast about 76.0)"
    assert effect_text(effect, replace(made, time=None)) == "step 98.0 → 80.0 ms ± 4.00"
    assert effect_text(replace(effect, others=1), made) == "step 98.0 → 80.0 ms ± 4.00, together with 1 other change"
    assert made.undone().time == TimeForecast(0.152, 0.196, 0.012)


@pytest.mark.parametrize(
    ("time", "work", "word"),
    [
        (TIME, 1.0, "faster"),
        (TimeForecast(0.196, 0.250, 0.02), 1.0, "slower"),
        (TimeForecast(0.196, 0.190, 0.02), 0.5, "same"),
        (TimeForecast(0.196, 0.210, 0.02), 2.0, "same"),
        (None, 0.9, "faster"),
        (None, 1.01, "same"),
        (None, None, "unknown"),
    ],
)
def test_within_its_margin_a_forecast_claims_no_order(time: TimeForecast | None, work: float | None, word: str) -> None:
    state = RunState()
    change = PlannedChange("freeze a", (), forecast_change(state, Change()))
    made = ForecastMade(1.0, 3, "", frozenset(), Change(), 0, 0, work=work, time=time)
    choice = choice_of(change, UNKNOWN, made, state)
    assert choice.time == word
    said = list(forecast_lines(3, UNKNOWN, [replace(choice, figures=Figures(1, 2, 3, 4, None))]))[-1]
    assert ("same within the margin, about" in said) is (word == "same" and time is not None)


def test_the_summary_has_both() -> None:
    state = RunState()
    apply(state, ev.CommandApplied(1.0, 5, SetTrainable(1, "a", False), "froze a", ()))
    state.forecast_of[1] = Prediction(0, 0, 0, None, True, TIME)
    (entry,) = summarised(state)["forecasts"]
    assert (entry["predicted_seconds"], entry["measured_seconds"]) == (pytest.approx(0.152), None)
    apply(state, ev.ReceiptTaken(2.0, 12, 1, "", True, Effect(time=TimeChange(0.098, 0.080, 0.004))))
    (entry,) = summarised(state)["forecasts"]
    assert (entry["predicted_seconds"], entry["measured_seconds"]) == (pytest.approx(0.076), 0.080)


def test_forecast_report_has_seconds_of_timed_modules() -> None:
    figures = Figures(1, 2, 3, 4, None)
    timed, other = Choice("freeze a", (), figures, "faster", (), TIME), Choice("freeze b", (), figures, "faster")
    lines = list(forecast_lines(50, figures, [timed, other]))
    assert "  time of a step   faster, about 152 ms ± 12.0 (now 196)" in lines
    assert "  time of a step   faster" in lines
    plans = forecast_document(figures, [timed, other])["plans"]
    assert [each["seconds"] for each in plans] == [{"now": 0.196, "seconds": 0.152, "margin": 0.012}, None]


def test_measured_times_are_those_since_newest_change() -> None:
    state = state_after(MODEL, times(forward=3, backward=5, optimizer=2), TIMED)
    found = measured_times(state)
    assert found is not None
    assert (found.step, found.optimizer) == (pytest.approx(0.010), 0.002)
    assert (found.forward, found.backward) == ((0.0, 0.003), (0.0, 0.005))
    state.changed_after = 50
    assert measured_times(state) is None
    assert measured_times(state_after(MODEL, TIMED)) is None
    on_device = replace(TIMED, is_on_device=True)
    assert measured_times(state_after(MODEL, times(forward=3), on_device)) is None
