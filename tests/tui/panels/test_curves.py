from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from helpers.app_session import session
from helpers.fakes import Node, coop_model, coop_run, found
from helpers.lines import line_text
from helpers.states import state_after
from hypothesis import given
from hypothesis import strategies as st
from textual.content import Content

from gradtui.protocol import events as ev
from gradtui.protocol.commands import FollowMicroSteps, SetTrainable
from gradtui.run.reducer import apply
from gradtui.run.state.over_steps.markers import MarkerKind
from gradtui.run.state.run_state import RunState
from gradtui.run.text.gradients import norms_awaited
from gradtui.run.text.units import number_text
from gradtui.tui.charts.plotter import Plotter
from gradtui.tui.charts.sanitise import sanitise
from gradtui.tui.panels.curves import (
    curves_request,
    curves_title,
    micro_step_line,
    waiting_text,
)
from gradtui.tui.panels.curves_legend import RowNorms, legend_line, step_shown
from gradtui.tui.plots.rows import NormCurve
from gradtui.tui.rendering import MARKERS, STALE, Line, line_width, width_of

any_float = st.floats() | st.sampled_from([0.0, -0.0, 5e-324, 1.7e308, math.nan, math.inf, -math.inf, 1e-200])
PLOTTER = Plotter()


@given(st.lists(st.tuples(st.none() | any_float, st.none() | any_float, st.none() | any_float), max_size=30), st.data())
def test_anything_a_float_can_be_can_be_drawn(rows: list[tuple[float | None, ...]], data: st.DataObject) -> None:
    state = state_after(found(Node("M", "M", (("a", (2,)), ("b", (2,))))))
    for step, (total, first, second) in enumerate(rows):
        apply(state, ev.GradientsMeasured(float(step), step, total, None, (first, second)))
    width, height = data.draw(st.integers(1, 90)), data.draw(st.integers(1, 30))
    steps, values = NormCurve().points(state.history, 0, 2)
    row = RowNorms("a", steps, values)
    picture = PLOTTER.picture("fuzz", curves_request(state, row, width, height))
    assert len(picture.lines) == height
    assert all(line_width(line) == width for line in picture.lines)
    assert line_width(legend_line(state, step_shown(state), row, 60)) <= 60


def test_total_and_row_share_log_axis() -> None:
    state = state_after(*coop_run(20))
    steps, values = NormCurve().points(state.history, 0, 1)
    request = curves_request(state, RowNorms("ctx", steps, values), 60, 10)
    assert request.y_scale == "log"
    assert request.series[0].ys == tuple(state.gradient_norm.values)
    assert request.series[1].ys == tuple(row[0] for row in state.history.rows)
    assert request.series[0].color != request.series[1].color


def test_loss_has_own_lane_of_steps() -> None:
    state = state_after(*coop_run(60))
    request = curves_request(state, None, 50, 8)
    assert [series.ys for series in request.above] == [tuple(state.loss.values)]
    assert request.x_limits == (1.0, 60.0)
    chart = sanitise(request)
    # Six rows remain above the x axis and its labels: three for each lane.
    loss, total = (curve.polylines[0] for curve in chart.curves)
    assert (min(loss.ys) > 3, max(total.ys) <= 3) == (True, True)
    assert (loss.xs[0], loss.xs[-1]) == (total.xs[0], total.xs[-1]) == (0.0, 42.0)


def test_loss_that_has_fallen_far_has_log_scale() -> None:
    courses: tuple[tuple[list[float], str], ...] = (
        ([4.0, 2.0, 1.0], "linear"),
        ([4.0, 2.0, 0.5], "log"),
        ([4.0, 2.0, 0.0], "linear"),
        ([4.0, 2.0, -1.0], "linear"),
        ([0.1 * step for step in range(1, 41)], "linear"),
        ([2.0] * 20 + [500.0] + [2.0] * 20, "linear"),
        ([2.0] * 39 + [0.001], "linear"),
        ([100.0] + [1.0] * 40, "log"),
    )
    for values, scale in courses:
        state = RunState()
        state.loss.extend(range(1, len(values) + 1), values)
        assert curves_request(state, None, 60, 12).above_scale == scale, values


def test_without_loss_norms_have_whole_canvas() -> None:
    state = state_after(*(ev.GradientsMeasured(1.0, step, 10.0**step, None, None) for step in (1, 2)))
    chart = sanitise(curves_request(state, None, 50, 8))
    # The line between the two samples, from the lowest to the highest row of dots.
    assert [(line.ys[0], line.ys[-1]) for line in chart.curves[0].polylines] == [(0.0, 6.0)]


def test_curves_begin_with_the_present_models() -> None:
    state = state_after(*coop_run(3))
    other = found(Node("Net", "Net", (("w", (2,)),)))
    apply(state, replace(other, step=3, models=(replace(other.models[0], number=1),)))
    apply(state, ev.GradientsMeasured(9.0, 4, 1.0, 2.0, (1.0,)))
    before = curves_request(state, None, 50, 8)
    assert [series.xs for series in (*before.above, *before.series)] == [(1.0, 2.0, 3.0), (4.0,)] * 2, (
        "a point is no curve, and no line joins two models"
    )
    assert [(line.x, line.label) for line in before.verticals] == [(3.0, "Net")]
    apply(state, ev.GradientsMeasured(9.0, 5, 1.0, 2.0, (1.0,)))
    request = curves_request(state, None, 50, 8)
    assert [series.xs for series in (*request.above, *request.series)] == [(4.0, 5.0)] * 2
    assert request.verticals == ()


def test_marker_before_first_sample_stands_at_its_edge() -> None:
    state = RunState()
    apply(state, ev.CommandApplied(0.1, 0, SetTrainable(1, "head", False), "froze head", (0,)))
    apply(state, ev.GradientsMeasured(1.0, 5, 1.0, None, None))
    assert [(line.x, line.glyph, line.label) for line in curves_request(state, None, 50, 8).verticals] == [
        (5.0, "■", "head")
    ]


def test_markers_have_characters_of_one_cell() -> None:
    glyphs = [MARKERS[kind][0] for kind in MarkerKind]
    assert len(set(glyphs)) == len(glyphs)
    assert all(width_of(glyph) == 1 for glyph in glyphs)


def test_labels_stay_same_whatever_values() -> None:
    early, late = (curves_request(state_after(*coop_run(steps)), None, 60, 10) for steps in (5, 20))
    assert [series.label for series in early.series] == [series.label for series in late.series]


def test_legend_names_row_by_end_of_its_path() -> None:
    row = RowNorms("text_encoder.blocks.3.mlp.0.weight", [1], [0.5])
    legend = line_text(legend_line(RunState(), 1, row, 55))
    assert "…0.weight 0.500" in legend
    assert len(legend) <= 55


def test_clipped_norm_is_curve_where_told() -> None:
    state = state_after(*coop_run(2))
    assert len(curves_request(state, None, 60, 10).series) == 1
    apply(state, ev.GradientsMeasured(9.0, 41, 1.0, None, None, 3.5, 1.0))
    apply(state, ev.GradientsMeasured(9.5, 42, 1.0, None, None, 4.5, 1.0))
    request = curves_request(state, None, 60, 10)
    assert [(series.color, series.ys[-1]) for series in request.series] == [("curve-3", 4.5), ("curve-1", 1.0)]
    assert {series.stride for series in request.series} == {1}
    row = RowNorms("text_encoder.blocks.3.mlp.0.weight", [42], [0.5])
    wide, narrow = (line_text(legend_line(state, 42, row, width)) for width in (90, 50))
    assert "before clipping at 1 4.50" in wide
    assert "clipping" not in narrow
    assert "weight" in narrow


def test_legend_is_of_step_that_tree_shows() -> None:
    """Totals are sent at every reading, the norms of the tree ten times a second at most."""
    state = state_after(found(Node("M", "M", (("a", (2,)), ("b", (2,))))))
    apply(state, ev.GradientsMeasured(1.0, 7, 5.0, None, (3.0, 4.0), 50.0, 5.0))
    apply(state, ev.GradientsMeasured(1.1, 8, 2.0, None, None, 20.0, 2.0))
    assert (state.tree.norms_step, step_shown(state)) == (7, 7)
    legend = text_of([legend_line(state, step_shown(state), None, 90)])
    assert "total 5.00" in legend
    assert "before clipping at 2 50.0" in legend
    assert legend.endswith("step 7")


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_legend_follows_tree_whichever_of_them_is_drawn(size: tuple[int, int]) -> None:
    count = len(coop_model().parameters)
    async with session(size, events=coop_run(20)) as run:
        for step, part in ((30, "gradients"), (31, "tree"), (32, "gradients"), (33, "memory"), (34, "tree")):
            norms = tuple(float(step + index % 7) for index in range(count))
            apply(run.app.run_state, ev.GradientsMeasured(9.0, step, math.hypot(*norms), 0.5, norms))
            run.dashboard.draw(part)
            root, legend = (view.text.splitlines()[0] for view in (run.dashboard.tree_view, run.dashboard.gradients))
            shown = number_text(run.dashboard.tree_view.totals.norm(range(count))).strip()
            assert shown in root
            assert f"‖g‖ {shown}" in legend.replace("total ", "")


def test_newest_total_replaces_missing_norms() -> None:
    state = state_after(ev.GradientsMeasured(1.0, 7, 5.0, None, None), ev.GradientsMeasured(1.1, 8, 2.0, None, None))
    assert step_shown(state) == 8
    assert step_shown(RunState()) is None


def test_legend_has_step_in_every_width_of_panel() -> None:
    """At 80x24 the panel has 29 cells."""
    row = RowNorms("text_encoder.blocks.3.mlp.0.weight", [40], [0.5])
    for step in (7, 333, 12_345):
        state = state_after(ev.GradientsMeasured(1.0, step, 0.9137, 0.211, None))
        for width, chosen in itertools.product(range(29, 100), (None, row)):
            legend = legend_line(state, step, chosen, width)
            assert line_width(legend) <= width
            assert text_of([legend]).rstrip().endswith((f"step {step:,}", f"@{step:,}"))
            assert text_of([legend]).startswith("Loss 0.211 ")
            assert " 0.914" in text_of([legend])


def test_loss_without_norms_has_its_step() -> None:
    """As at the end: the norm of the last step is measured late, without its loss."""
    state = state_after(
        ev.GradientsMeasured(1.0, 449, 1.0, 0.281, None), ev.GradientsMeasured(1.1, 450, 1.23, None, None)
    )
    wide, narrow = (" ".join(text_of([legend_line(state, 450, None, width)]).split()) for width in (60, 29))
    assert wide == "Loss 0.281 at 449 ‖g‖ total 1.23 step 450"
    assert narrow == "Loss 0.281 @449 ‖g‖ 1.23 @450"


def test_old_norms_are_dim_beside_the_newest_loss() -> None:
    state = state_after(
        ev.GradientsMeasured(1.0, 300, 0.9, 1.21, (0.9,)), ev.GradientsMeasured(2.0, 333, None, 0.573, None)
    )
    state.step = 333
    row = RowNorms("ctx", [300], [0.9])
    assert "Loss 1.21 " in text_of([legend_line(state, 300, row, 60)]), "all of one step, as long as that is fresh"
    state.steps_per_second = 5.0
    legend = legend_line(state, 300, row, 60)
    words = " ".join(text_of([legend]).split())
    assert words == "Loss 0.573 at 333 ‖g‖ total 0.900 ctx 0.900 step 300"
    roles = {text.strip(): role for text, role in legend}
    assert (roles["0.573"], roles["0.900"], roles["step 300"]) == ("text", STALE, "muted")


def test_a_row_without_gradient_is_a_dash() -> None:
    assert "–" in line_text(legend_line(RunState(), None, RowNorms("frozen", [1], [None]), 60))


def test_an_empty_panel_says_what_will_fill_it() -> None:
    assert "Waiting" in waiting_text(RunState())
    assert "never trained" in waiting_text(state_after(ev.RunEnded(1.0, 0, 0, None)))
    assert waiting_text(state_after(*coop_run(2))) == ""


def test_nothing_waits_for_a_backward_that_has_been() -> None:
    model = found(Node("Net", "Net", (("w", (2,)),), ()))
    counted = ev.Progress(1.0, 0, 0, 3, 0, (), (), 0.0, 1, 1)
    assert "first optimizer step" in waiting_text(state_after(model, counted))
    measured = ev.GradientsMeasured(1.0, 1, 1.0, None, (1.0,))
    state = state_after(model, measured)
    assert " of step 1: " in norms_awaited(state)


def test_thinning_is_said() -> None:
    state = state_after(*coop_run(2))
    assert "every" not in curves_title(state)
    state.cost.norms_every = 4
    assert "every 4 steps" in curves_title(state)
    apply(state, ev.RunEnded(9.0, 4, 0, None))
    assert "every" not in curves_title(state), "nothing is taken any more"


@pytest.mark.parametrize(
    ("width", "words"),
    [
        (100, "L2 of this rank's part every 4 steps, 12 dropped"),
        (30, "L2 every 4 steps, 12 dropped"),
        (26, "every 4 steps, 12 dropped"),
        (13, "every 4 steps"),
        (10, "every 4"),
        (3, ""),
        (-2, ""),
    ],
)
def test_title_first_says_steps_are_unread(width: int, words: str) -> None:
    state = state_after(*coop_run(2))
    state.cost.norms_every, state.cost.readings_late, state.tree.is_sharded = 4, 12, True
    assert curves_title(state, width) == words


@pytest.mark.parametrize("size", [(80, 24), (100, 28), (120, 36)])
async def test_frame_says_steps_are_unread(size: tuple[int, int]) -> None:
    async with session(size, coop_run(2)) as run:
        panel = run.dashboard.gradients
        assert "every" not in str(panel.border_title)
        run.app.run_state.cost.norms_every = 4
        run.app.pump()
        title = Content.from_markup(str(panel.border_title)).plain
        assert "every 4" in title
        assert len(title) <= panel.size.width


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


def test_unmeasured_behind_device_is_told() -> None:
    state = state_after(*coop_run(3))
    assert "dropped" not in curves_title(state)
    apply(state, ev.Progress(2.0, 4, 1, 1, 0, (1,), (), 0.0, 1, 1, 3))
    assert curves_title(state) == "L2, 3 dropped"
    apply(state, ev.Progress(2.1, 5, 1, 1, 0, (1,), (), 0.0, 1, 1, 5))
    assert len([entry for entry in state.log if "not measured" in entry.text]) == 1


@pytest.mark.parametrize("width", range(16, 100))
def test_figures_of_another_step_than_legends_name_it(width: int) -> None:
    state = state_after(
        *coop_run(2),
        ev.GradientsMeasured(9.0, 300, 2.5, None, None),
        ev.StepsMeasured(9.1, 301, (ev.StepFigures(301, 0, 0.75),)),
    )
    row = RowNorms("ctx", [299], [0.125])
    shown = text_of([legend_line(state, 300, row, width)])
    assert "2.5" in shown
    for value, step in (("0.75", 301), ("0.125", 299)):
        assert (value in shown) is (str(step) in shown)
    assert ("300" in shown) or "0.75" not in shown


@pytest.mark.parametrize(
    ("width", "words"),
    [
        (40, "loss falling, steps 101–200 · L2"),
        (27, "loss falling, steps 101–200"),
        (26, "loss falling to step 200"),
        (16, "loss falling"),
        (11, ""),
    ],
)
def test_the_title_says_where_the_loss_goes(width: int, words: str) -> None:
    state = RunState()
    state.loss.extend(range(1, 201), [1 / step for step in range(1, 201)])
    assert curves_title(state, width) == words
    assert curves_title(state, max(0, width - 5), is_wide=False) == words.removeprefix("loss ")
