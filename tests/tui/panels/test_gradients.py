from __future__ import annotations

import math

from fakes import Node, coop_run, found
from hypothesis import given, settings
from hypothesis import strategies as st

from gradtui.protocol import events as ev
from gradtui.protocol.commands import FollowMicroSteps
from gradtui.reducer import apply
from gradtui.state.run_state import RunState
from gradtui.tui.charts.plotter import Plotter
from gradtui.tui.panels.gradients import (
    RowNorms,
    gradient_request,
    gradient_title,
    legend_line,
    micro_step_line,
    step_shown,
    waiting_text,
)
from gradtui.tui.plots.rows import NormCurve
from gradtui.tui.rendering.lines import Line, line_width


def state_after(*events: ev.Event) -> RunState:
    state = RunState()
    for event in events:
        apply(state, event)
    return state


any_float = st.floats() | st.sampled_from([0.0, -0.0, 5e-324, 1.7e308, math.nan, math.inf, -math.inf, 1e-200])
PLOTTER = Plotter()


@settings(max_examples=200)
@given(st.lists(st.tuples(st.none() | any_float, st.none() | any_float, st.none() | any_float), max_size=30), st.data())
def test_anything_a_float_can_be_can_be_drawn(rows: list[tuple[float | None, ...]], data: st.DataObject) -> None:
    state = state_after(found(Node("M", "M", (("a", (2,)), ("b", (2,))))))
    for step, (total, first, second) in enumerate(rows):
        apply(state, ev.GradientsMeasured(float(step), step, total, None, (first, second)))
    width, height = data.draw(st.integers(1, 90)), data.draw(st.integers(1, 30))
    steps, values = NormCurve().points(state.history, 0, 2)
    row = RowNorms("a", steps, values)
    picture = PLOTTER.picture("fuzz", gradient_request(state, row, width, height))
    assert len(picture.lines) == height
    assert all(line_width(line) == width for line in picture.lines)
    assert line_width(legend_line(state, step_shown(state), row, 60)) <= 60


def test_the_total_and_the_row_are_two_curves_on_a_log_axis() -> None:
    state = state_after(*coop_run(20))
    steps, values = NormCurve().points(state.history, 0, 1)
    request = gradient_request(state, RowNorms("ctx", steps, values), 60, 10)
    assert request.y_scale == "log"
    assert request.series[0].ys == tuple(state.gradient_norm.values)
    assert request.series[1].ys == tuple(row[0] for row in state.history.rows)
    assert request.series[0].color != request.series[1].color


def test_labels_are_the_same_whatever_the_values_so_that_pictures_stay_comparable() -> None:
    early, late = (gradient_request(state_after(*coop_run(steps)), None, 60, 10) for steps in (5, 20))
    assert [series.label for series in early.series] == [series.label for series in late.series]


def test_the_legend_names_the_row_by_the_end_of_its_path() -> None:
    row = RowNorms("text_encoder.blocks.3.mlp.0.weight", [1], [0.5])
    legend = "".join(text for text, _ in legend_line(RunState(), None, row, 50))
    assert ".mlp.0.weight" in legend
    assert "0.500" in legend
    assert len(legend) <= 50


def test_what_the_script_clips_is_a_curve_of_its_own_and_told_where_there_is_room() -> None:
    state = state_after(*coop_run(2))
    assert len(gradient_request(state, None, 60, 10).series) == 1
    apply(state, ev.GradientsMeasured(9.0, 41, 1.0, None, None, 3.5, 1.0))
    apply(state, ev.GradientsMeasured(9.5, 42, 1.0, None, None, 4.5, 1.0))
    request = gradient_request(state, None, 60, 10)
    assert [(series.color, series.ys[-1]) for series in request.series] == [("curve-3", 4.5), ("curve-1", 1.0)]
    row = RowNorms("text_encoder.blocks.3.mlp.0.weight", [42], [0.5])
    wide, narrow = ("".join(text for text, _ in legend_line(state, 42, row, width)) for width in (90, 40))
    assert "before clipping at 1 4.50" in wide
    assert "clipping" not in narrow
    assert "weight" in narrow


def test_the_legend_is_of_the_step_that_the_tree_shows() -> None:
    """Totals are sent at every reading, the norms of the tree ten times a second at most."""
    state = state_after(found(Node("M", "M", (("a", (2,)), ("b", (2,))))))
    apply(state, ev.GradientsMeasured(1.0, 7, 5.0, None, (3.0, 4.0), 50.0, 5.0))
    apply(state, ev.GradientsMeasured(1.1, 8, 2.0, None, None, 20.0, 2.0))
    assert (state.tree.norms_step, step_shown(state)) == (7, 7)
    legend = text_of([legend_line(state, step_shown(state), None, 90)])
    assert "total 5.00" in legend
    assert "before clipping at 2 50.0" in legend
    assert legend.endswith("step 7")


def test_the_newest_total_is_shown_where_the_tree_has_no_norms() -> None:
    state = state_after(ev.GradientsMeasured(1.0, 7, 5.0, None, None), ev.GradientsMeasured(1.1, 8, 2.0, None, None))
    assert step_shown(state) == 8
    assert step_shown(RunState()) is None


def test_a_row_without_gradient_is_a_dash() -> None:
    assert "–" in "".join(text for text, _ in legend_line(RunState(), None, RowNorms("frozen", [1], [None]), 60))


def test_an_empty_panel_says_what_will_fill_it() -> None:
    assert "Waiting" in waiting_text(RunState())
    assert "never trained" in waiting_text(state_after(ev.RunEnded(1.0, 0, 0, None)))
    assert waiting_text(state_after(*coop_run(2))) == ""


def test_thinning_is_said() -> None:
    state = state_after(*coop_run(2))
    assert "every" not in gradient_title(state)
    state.cost.norms_every = 4
    assert "every 4 steps" in gradient_title(state)
    apply(state, ev.RunEnded(9.0, 4, 0, None))
    assert "every" not in gradient_title(state), "nothing is taken any more"


def test_what_accumulates_is_told_while_it_is_followed() -> None:
    state = state_after(*coop_run(3))
    assert micro_step_line(state, 80) == []
    apply(state, ev.CommandApplied(2.0, 3, FollowMicroSteps(1, True), "follow", ()))
    assert "waiting" in text_of(micro_step_line(state, 80))
    for number, total in enumerate((0.25, 0.5, 0.75), 1):
        apply(state, ev.MicroStepMeasured(2.0, 4, number, total))
    assert text_of(micro_step_line(state, 80)) == "accumulated after each micro-step 0.250 → 0.500 → 0.750 (step 4)"
    assert text_of(micro_step_line(state, 32)) == "micro-steps 0.250 → … → 0.750"
    assert text_of(micro_step_line(state, 38)) == "micro-steps 0.250 → 0.500 → 0.750"
    assert text_of(micro_step_line(state, 20)) == "micro-steps 0.750"
    for width in (*range(13, 90), 200):
        assert line_width(micro_step_line(state, width)[0]) <= width
    apply(state, ev.CommandApplied(3.0, 4, FollowMicroSteps(2, False), "no longer", ()))
    assert micro_step_line(state, 80) == []


def text_of(lines: list[Line]) -> str:
    return "".join(text for line in lines for text, _ in line)


def test_what_was_not_measured_because_a_device_was_behind_is_told() -> None:
    state = state_after(*coop_run(3))
    assert "dropped" not in gradient_title(state)
    apply(state, ev.Progress(2.0, 4, 1, 1, 0, (1,), (), 0.0, 1, 1, 3))
    assert gradient_title(state) == "L2, log, 3 dropped · g: plots"
    apply(state, ev.Progress(2.1, 5, 1, 1, 0, (1,), (), 0.0, 1, 1, 5))
    assert [entry.text for entry in state.log if "not measured" in entry.text] == [
        "gradients not measured: the device is too far behind, and training does not wait for it"
    ]
