"""The plot of the memory of each step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.fakes import MIB, device_sample
from helpers.lines import text
from helpers.step_memory import BEFORE, state, totals

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import Phase
from gradtui.run.reducer import apply
from gradtui.run.state.over_steps.markers import MarkerKind
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import short_bytes
from gradtui.tui.plots.memory import PEAK_ROLE, TOTAL_ROLE, memory_plot, memory_plot_table
from gradtui.tui.plots.options import PlotOptions
from gradtui.tui.plots.window import Window
from gradtui.tui.rendering import PHASE_ROLES, line_width

PHASES = ("forward", "backward", "optimizer")


def test_curve_draws_step_ends_and_peak() -> None:
    plot = memory_plot(state(60, exact=True), PlotOptions(), 110, 30)
    held, peak = plot.request.series
    assert (held.color, held.ys) == (TOTAL_ROLE, (80 * MIB - BEFORE,) * 60)
    assert (peak.color, peak.ys[-1]) == (PEAK_ROLE, (totals(60, exact=True).peak or 0) - BEFORE)
    assert plot.request.y_label == "memory"
    assert "end of the step" in plot.note


def test_chosen_phase_draws_its_total() -> None:
    plot = memory_plot(state(60), PlotOptions(phases="backward"), 110, 30)
    assert [series.color for series in plot.request.series] == [PHASE_ROLES[Phase.BACKWARD], PEAK_ROLE]
    assert f"backward {short_bytes(90 * MIB - BEFORE)}" in text(plot.above)
    assert "end of backward" in plot.note


def test_curve_draws_phases_and_peak() -> None:
    plot = memory_plot(state(60, exact=True), PlotOptions(phases="all"), 110, 30)
    drawn = {series.color: (series.xs, series.ys) for series in plot.request.series}
    steps = tuple(map(float, range(1, 61)))
    known = [totals(step, exact=True) for step in range(1, 61)]
    expected = {
        PHASE_ROLES[phase]: (steps, tuple(getattr(step, phase) - BEFORE for step in known)) for phase in PHASE_ROLES
    }
    assert drawn == expected | {PEAK_ROLE: (steps, tuple((step.peak or 0) - BEFORE for step in known))}
    assert plot.request.series[-1].color == PEAK_ROLE
    assert (plot.request.unit, plot.request.y_scale, plot.request.from_zero) == ("bytes", "linear", False)


@pytest.mark.parametrize("width", [60, 76, 110, 150])
def test_legend_has_newest_values_and_their_step(width: int) -> None:
    run = state(60)
    plot = memory_plot(run, PlotOptions(phases="all"), width, 30)
    newest, shown = totals(60), text(plot.above)
    for name in PHASES:
        assert f"{name} {short_bytes(getattr(newest, name) - BEFORE)}" in shown
    assert f"highest at phase ends {short_bytes((newest.peak or 0) - BEFORE)}" in shown
    assert "step 60" in shown
    assert len(plot.above) <= 2
    assert all(line_width(line) <= width for line in (*plot.above, *plot.below))


def test_totals_of_different_steps_each_have_their_step() -> None:
    run, last = state(60), ev.StepTotals(61, 70 * MIB, None, None, None)
    apply(run, ev.StepMemoryMeasured(6.2, 61, (last,)))
    plot = memory_plot(run, PlotOptions(phases="all"), 110, 30)
    shown = text(plot.above)
    assert f"forward {short_bytes(70 * MIB - BEFORE)} @61" in shown
    assert f"backward {short_bytes((totals(60).backward or 0) - BEFORE)} @60" in shown
    assert "step" not in shown + plot.note


def test_zoomed_the_legend_is_of_the_visible_steps() -> None:
    plot = memory_plot(state(60), PlotOptions(window=Window(20.0, 40.0)), 110, 30)
    assert "step 40" in text(plot.above)
    assert f"highest at phase ends {short_bytes((totals(40).peak or 0) - BEFORE)}" in text(plot.above)
    assert "steps 20–40 of 60" in plot.note


def test_at_the_cursor_every_curve_is_read() -> None:
    plot = memory_plot(state(60, {20: 300 * MIB}), PlotOptions(cursor=20.0, phases="all"), 110, 30)
    shown = text(plot.above)
    assert shown.startswith("│ step 20   ── highest at phase ends ")
    assert f"forward {short_bytes((totals(20, 300 * MIB).forward or 0) - BEFORE)}" in shown
    assert "@" not in shown
    assert [mark.step for mark in plot.marks if mark.kind is MarkerKind.SPIKE] == [20]


def test_spikes_are_marked_and_the_newest_is_named() -> None:
    run = state(60, {20: 300 * MIB, 40: 64 * MIB})
    plot = memory_plot(run, PlotOptions(), 110, 30)
    marked = {line.x: (line.glyph, line.label) for line in plot.request.verticals if line.glyph == "▲"}
    usual = 101 * MIB
    more = {step: totals(step, size).peak or 0 for step, size in ((20, 300 * MIB), (40, 64 * MIB))}
    assert marked == {float(step): ("▲", f"+{round((peak - usual) / MIB)}M") for step, peak in more.items()}
    below = " ".join(text(plot.below).split())
    assert "2 spikes, the newest at step 40 " in below
    assert short_bytes(more[40] - BEFORE) in below
    assert f"(+{short_bytes(more[40] - usual)})" in below
    assert f"Without {short_bytes(BEFORE)} from before training." in below


def test_kept_peak_is_no_lower_bound() -> None:
    plot = memory_plot(state(60, {40: 64 * MIB}, exact=True), PlotOptions(), 110, 30)
    assert "≥" not in text(plot.above) + text(plot.below)


def test_the_other_scale_begins_at_zero() -> None:
    plot = memory_plot(state(60), PlotOptions(other_scale=True), 110, 30)
    assert (plot.request.from_zero, plot.request.y_scale) == (True, "linear")
    assert "from zero" in plot.note


@pytest.mark.parametrize(("total", "is_drawn"), [(130, True), (1000, False)])
def test_device_limit_is_line_if_near(total: int, is_drawn: bool) -> None:
    run = state(60, exact=True)
    assert run.started is not None
    run.started = replace(run.started, device="cuda:0")
    apply(run, replace(device_sample(), device_total=total * MIB))
    for from_zero in (False, True):
        plot = memory_plot(run, PlotOptions(other_scale=from_zero), 140, 30)
        lines = [series.ys for series in plot.request.series if series.color == "reference"]
        assert lines == ([(total * MIB, total * MIB)] if is_drawn or from_zero else [])
        assert f"device limit {short_bytes(total * MIB)}" in text(plot.above)
        assert ("limit beyond the axis" in plot.note) is (not is_drawn and not from_zero)


def test_on_the_host_there_is_no_such_line() -> None:
    run = state(60)
    apply(run, replace(device_sample(), device_total=130 * MIB))
    plot = memory_plot(run, PlotOptions(), 140, 30)
    assert "reference" not in {series.color for series in plot.request.series}


def test_table_has_totals_as_allocator_counts_them() -> None:
    table = memory_plot_table(state(30), PlotOptions(window=Window(10.0, 20.0)))
    assert table.columns == ("optimizer_step", "peak_bytes", "forward_bytes", "backward_bytes", "optimizer_bytes")
    known = [totals(step) for step in range(10, 21)]
    assert table.rows == tuple((t.step, t.peak, t.forward, t.backward, t.optimizer) for t in known)


def test_it_says_what_it_waits_for() -> None:
    assert "Waiting for the first step" in text(memory_plot(RunState(), PlotOptions(), 60, 20).above)
    ended = RunState()
    apply(ended, ev.RunEnded(1.0, 0, 0, None))
    assert "ended before" in text(memory_plot(ended, PlotOptions(), 60, 20).above)
