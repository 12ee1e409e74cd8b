"""The curves of a run that has returned to a kept state."""

from __future__ import annotations

from dataclasses import replace

from helpers.lines import text

from gradtui.protocol import events as ev
from gradtui.protocol.commands import ReturnToState
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.tui.panels.curves import curves_request as panel_request
from gradtui.tui.plots.branched import branched
from gradtui.tui.plots.losses import loss_curves, loss_plot
from gradtui.tui.plots.norms import norm_plot
from gradtui.tui.plots.options import PlotOptions
from gradtui.tui.plots.rows import LOSS_ROLE
from gradtui.tui.plots.window import Window


def run() -> RunState:
    """Steps 1 to 30, a return from there to step 10, and ten more steps."""
    state = RunState()
    measure(state, range(1, 31))
    apply(state, ev.StateKept(0.5, 10, 1, "command", "", 10, 0.1))
    apply(state, ev.ReturnedToState(3.0, 30, 1, 10, 0.1))
    apply(state, ev.CommandApplied(3.0, 30, ReturnToState(1, 10), "returned to step 10: 9 tensors", ()))
    measure(state, range(31, 41))
    return state


def measure(state: RunState, steps: range) -> None:
    apply(
        state, ev.StepsMeasured(1.0, steps[-1], tuple(ev.StepFigures(step, 0, 1 / step, total=1.0) for step in steps))
    )
    apply(state, ev.Progress(1.0, steps[-1], len(steps), len(steps), 0, (len(steps),), (), 0.0, 1, 1))


def test_steps_after_return_have_second_colour() -> None:
    first, second = branched(run(), loss_curves(run()))
    assert [*first.steps] == [*range(1, 31)]
    assert [*second.steps] == [*range(11, 21)]
    assert [*second.values] == [1 / step for step in range(31, 41)]
    assert first.role == LOSS_ROLE != second.role
    assert (first.name, second.name) == ("loss", "loss from step 10 on")


def test_plot_reads_both_courses_together() -> None:
    plot = loss_plot(run(), PlotOptions(cursor=15.0), 100, 20)
    assert plot.range == (1.0, 30.0)
    legend = text(plot.above)
    assert f"loss {1 / 15:.3f}" in legend
    assert f"loss from step 10 on {1 / 35:.3f}" in legend
    assert len({series.color for series in plot.request.series}) == 2
    # The return itself stands where the run came from.
    assert [(line.x, line.label) for line in plot.request.verticals] == [(30, "back to step 10")]


def test_marks_after_return_name_their_steps() -> None:
    state = run()
    apply(state, ev.CommandApplied(4.0, 35, ReturnToState(2, 10), "returned to step 10: 9 tensors", ()))
    mark = loss_plot(state, PlotOptions(), 100, 20).marks[-1]
    assert (mark.step, mark.place) == (35, 15)


def test_window_shows_new_course_among_former_steps() -> None:
    options = replace(PlotOptions(), window=Window(10.0, 20.0))
    plot = norm_plot(run(), options, 100, 20)
    assert plot.request.x_limits == (10.0, 20.0)
    assert {series.xs[-1] for series in plot.request.series} == {20.0}


def test_the_panel_draws_the_same() -> None:
    request = panel_request(run(), None, 80, 10)
    before, after = request.above
    assert (before.xs[-1], after.xs[0], after.xs[-1]) == (30.0, 11.0, 20.0)
    assert before.color != after.color
    assert request.x_limits == (1.0, 30.0)


def test_without_return_curves_are_same_objects() -> None:
    state = RunState()
    measure(state, range(1, 31))
    curves = loss_curves(state)
    assert all(one is other for one, other in zip(branched(state, curves), curves))


def test_courses_of_curve_share_scale() -> None:
    state = run()
    apply(state, ev.StepsMeasured(4.0, 50, tuple(ev.StepFigures(step, 0, 1e4) for step in range(41, 51))))
    plot = loss_plot(state, PlotOptions(), 100, 20)
    assert plot.request.series
    assert not plot.request.has_lanes
