"""What each view makes of a run: the numbers drawn, the words around them, and the table."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from helpers.events import gradient_stats
from helpers.fakes import Node, coop_model, coop_run, found, started
from helpers.lines import text
from helpers.states import state_after
from hypothesis import given
from hypothesis import strategies as st

from gradtui.protocol import events as ev
from gradtui.protocol.measurements import BINS, LOWEST, GradientHistogram
from gradtui.protocol.vocabulary import GradientStats, GroupSettings, OptimizerInfo, Phase
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.tui.charts.plotter import Plotter
from gradtui.tui.plots.depth import depth_plot, depth_table
from gradtui.tui.plots.histogram import EDGES, histogram_plot, histogram_table, spread_of
from gradtui.tui.plots.layers import KeptLayers, layers_of
from gradtui.tui.plots.losses import loss_plot
from gradtui.tui.plots.norms import norm_plot, norm_table
from gradtui.tui.plots.options import PlotOptions
from gradtui.tui.plots.ratios import ratio_plot, ratio_table
from gradtui.tui.plots.rows import Selection, to_watch
from gradtui.tui.plots.settings import VIEWS
from gradtui.tui.plots.speed import speed_plot, speed_table
from gradtui.tui.plots.window import Window
from gradtui.tui.rendering.lines import line_width

PLOTTER = Plotter()


def layered(count: int = 4) -> ev.ModelsFound:
    """Layers 0, 1, … of a weight and a bias each."""
    parts = (("weight", (6, 6)), ("bias", (6,)))
    return found(Node("Net", "Net", (), tuple(Node(str(i), "Linear", parts) for i in range(count))))


def norms(step: int, *values: float | None, total: float | None = None, **extra: float) -> ev.GradientsMeasured:
    whole = math.hypot(*(v for v in values if v is not None)) if total is None else total
    return ev.GradientsMeasured(float(step), step, whole, None, values, **extra)


def figures(parameter: int, ratio: float | None) -> GradientStats:
    return gradient_stats(parameter, ratio)


def histogram(parameter: int = 0, *, bins: dict[int, int] | None = None, **counts: int) -> GradientHistogram:
    filled = bins or {}
    plain = {"smaller": 0, "larger": 0, "zeros": 0, "nan": 0, "inf": 0, "positive": 0} | counts
    known = sum(plain[k] for k in ("smaller", "larger", "zeros", "nan", "inf")) + sum(filled.values())
    seen = plain.pop("seen", known)
    elements = plain.pop("elements", seen)
    return GradientHistogram(
        parameter=parameter,
        counts=tuple(filled.get(at, 0) for at in range(BINS)),
        seen=seen,
        elements=elements,
        **plain,
    )


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.id)
@pytest.mark.parametrize(
    "state",
    [RunState(), state_after(started(), coop_model()), state_after(*coop_run(30))],
    ids=["nothing", "found", "running"],
)
def test_views_fit_any_time_and_size(view, state) -> None:  # type: ignore[no-untyped-def]
    for row in (None, Selection("ctx", 0, 1), Selection("everything", 0, len(state.tree.parameters))):
        if row is not None and row.last > len(state.tree.parameters):
            continue
        for width, height in ((76, 20), (110, 32), (20, 5), (1, 1)):
            plot = view.plot(state, PlotOptions(row), width, height)
            assert plot.request is not None or text(plot.above).strip()
            for line in (*plot.above, *plot.below):
                assert line_width(line) <= max(width, 8)
            if plot.request is not None and width > 20:
                drawn = PLOTTER.picture(view.id, plot.request).lines
                assert len(plot.above) + len(drawn) + len(plot.below) == height
        view.table(state, PlotOptions(row))


def test_speed_is_that_of_steps_since_value_before() -> None:
    def progress(step: int, steps: int, seconds: float) -> ev.Progress:
        phases = (ev.PhaseTime(Phase.FORWARD, seconds, steps),)
        return ev.Progress(float(step), step, steps, steps, 0, (steps,), phases, 0.0, 1, 1)

    state = state_after(layered(2), progress(1, 1, 5.0), progress(11, 10, 0.5), progress(13, 2, 0.4))
    plot = speed_plot(state, PlotOptions(), 76, 20)
    (drawn,) = plot.request.series
    assert (drawn.xs, drawn.ys, plot.request.from_zero) == ((11.0, 13.0), (20.0, 5.0), True)
    assert "steps/s 5.00/s" in text(plot.above)
    assert speed_table(state, PlotOptions()).rows == ((11, 20.0), (13, 5.0))


# Norms


def test_norms_are_told_before_clipping() -> None:
    model = layered(2)
    clip = {"before_clipping": 5.0, "clipped_at": 1.0}
    state = state_after(model, norms(1, 3.0, 4.0, 0.0, None), norms(2, 0.6, 0.8, 0.0, None, **clip))
    plot = norm_plot(state, PlotOptions(Selection("0.weight", 0, 1)), 76, 20)
    drawn = {series.color: (series.xs, series.ys) for series in plot.request.series}
    assert drawn == {
        "reference": ((2.0,), (1.0,)),
        "curve-3": ((2.0,), (5.0,)),
        "curve-1": ((1.0, 2.0), (5.0, 1.0)),
        "curve-2": ((1.0, 2.0), (3.0, 0.6)),
    }
    assert plot.request.y_scale == "log"
    table = norm_table(state, PlotOptions(Selection("0.weight", 0, 1)))
    assert table.columns == ("optimizer_step", "total_norm", "norm_before_clipping", "clip_threshold", "0.weight")
    assert table.rows == ((1, 5.0, None, None, 3.0), (2, 1.0, 5.0, 1.0, 0.6))


def test_legend_says_of_which_step_its_values_are() -> None:
    state, options = state_after(layered(2), norms(1, 3.0, 4.0, 0.0, None)), PlotOptions(Selection("0.weight", 0, 1))

    def legend() -> str:
        return " ".join(text(norm_plot(state, options, 76, 20).above).split())

    assert legend() == "── total 5.00 ── 0.weight 3.00 step 1"
    apply(state, ev.GradientsMeasured(2.0, 2, 6.0, None, None))
    assert legend() == "── total 6.00 @2 ── 0.weight 3.00 @1"


def test_pinned_rows_are_drawn_once() -> None:
    state = state_after(layered(2), norms(1, 3.0, 4.0, 1.0, 2.0))
    one, two = Selection("0", 0, 2), Selection("1.weight", 2, 3)
    plot = norm_plot(state, PlotOptions(one, pinned=(two, one)), 76, 20)
    drawn = {series.color: series.ys for series in plot.request.series}
    assert drawn == {"curve-1": (math.hypot(3, 4, 1, 2),), "curve-4": (1.0,), "curve-5": (5.0,)}


def test_window_shows_kept_steps_and_share() -> None:
    state = state_after(layered(1))
    for step in range(1, 5_001):
        apply(state, norms(step, 1.0, 1.0, total=1.0 if step != 700 else 900.0))
    options = PlotOptions(window=Window(1_000.0, 1_200.0))
    plot = norm_plot(state, options, 76, 20)
    total = next(series for series in plot.request.series if series.color == "curve-1")
    assert all(200 <= x <= 1_200 for x in total.xs)
    assert 900.0 in total.ys, "a spike outlives thinning and zooming"
    assert len(total.xs) < 1_000
    assert f"{len(total.xs):,} of 1,001 steps" in plot.note
    assert "steps 200–1,200 of 5,000" in plot.note
    assert [row[0] for row in norm_table(state, options).rows] == [int(x) for x in total.xs]


def test_smoothing_hides_no_nan() -> None:
    state = state_after(
        layered(1), *(norms(s, 1.0, 1.0, total=math.nan if s == 5 else float(s % 2 + 1)) for s in range(1, 9))
    )
    plot = norm_plot(state, PlotOptions(smoothing=0.9), 76, 20)
    raw, smooth = plot.request.series
    assert (raw.color, smooth.color) == ("curve-1-raw", "curve-1")
    assert (
        [math.isnan(y or 0) for y in smooth.ys] == [math.isnan(y or 0) for y in raw.ys] == [s == 5 for s in range(1, 9)]
    )
    swing = [max(ys) - min(ys) for ys in (raw.ys[1:4], smooth.ys[1:4])]  # type: ignore[type-var]
    assert swing[1] < swing[0] / 2  # type: ignore[operator]
    assert "EMA 0.9" in plot.note
    # The numbers written down are those that were measured.
    assert norm_table(state, PlotOptions(smoothing=0.9)).rows[0][1] == 2.0


def test_average_does_not_change_as_window_moves() -> None:
    state = state_after(layered(1), *(norms(s, 1.0, 1.0, total=float(s)) for s in range(1, 101)))
    whole, part = (norm_plot(state, PlotOptions(smoothing=0.9, window=w), 76, 20) for w in (Window(), Window(10.0)))
    assert whole.request.series[-1].ys[-11:] == part.request.series[-1].ys


# Ratios


def test_ratios_have_the_line_that_people_know() -> None:
    state = state_after(layered(1), norms(1, 1.0, 1.0))
    for step, ratio in ((1, 1e-2), (7, 2e-3), (9, 0.0)):
        apply(state, ev.GradientFiguresMeasured(1.0, step, (figures(0, ratio), figures(1, None))))
    options = PlotOptions(Selection("0.weight", 0, 1))
    plot = ratio_plot(state, options, 76, 20)
    usual, own = plot.request.series
    assert usual.ys == (1e-3, 1e-3)
    assert usual.xs == (1.0, 9.0)
    assert (own.xs, own.ys) == ((1.0, 7.0, 9.0), (1e-2, 2e-3, 0.0))
    # The legend and the labels of the axis have one form.
    assert "usual 0.0010" in text(plot.above)
    assert plot.request.y_label == "Δw/w"
    assert ratio_table(state, options).rows == ((1, 1e-2), (7, 2e-3), (9, 0.0))


def test_largest_tensors_of_module_are_drawn() -> None:
    state = state_after(layered(3), norms(1, *[1.0] * 6))
    for index in range(6):
        apply(state, ev.GradientFiguresMeasured(1.0, 1, (figures(index, 0.1),)))
    plot = ratio_plot(state, PlotOptions(Selection("Net", 0, 6)), 110, 20)
    assert "3 largest of 6 tensors" in text(plot.below)
    assert ratio_table(state, PlotOptions(Selection("Net", 0, 6))).columns[1:] == ("0.weight", "1.weight", "2.weight")


def test_of_several_param_groups_each_has_a_line() -> None:
    """The line of a group is the median of its weights; biases are left out."""
    state = state_after(layered(3), norms(1, *[1.0] * 6))
    optimizer = OptimizerInfo("SGD", 2, tuple(range(6)), 0, (0, 0, 0, 0, 1, 1))
    apply(state, ev.OptimizersFound(1.0, 0, (optimizer,)))
    settings = GroupSettings(0.1, None, (), "body"), GroupSettings(1e-4, None)
    apply(state, ev.GroupsRead(1.0, 1, (settings,)))
    apply(state, ev.ParametersClassified(1.0, 1, "TTTTTT", "111111"))
    for step in (1, 2):
        ratios = [(0, 1e-2 * step), (1, 0.5), (2, 4e-2), (4, 1e-3)]
        apply(state, ev.GradientFiguresMeasured(1.0, step, tuple(figures(*each) for each in ratios)))
    options = PlotOptions(Selection("Net", 0, 6))
    table = ratio_table(state, options)
    assert table.columns[1:] == ("group 0 (body, lr 0.1)", "group 1 (2, lr 1e-4)")
    assert table.rows == ((1, pytest.approx(2.5e-2), 1e-3), (2, pytest.approx(3e-2), 1e-3))
    plot = ratio_plot(state, options, 110, 20)
    assert "each parameter group" in text(plot.below)
    assert ratio_table(state, PlotOptions(Selection("0", 0, 2))).columns[1:] == ("0.weight", "0.bias")
    pinned = replace(options, pinned=(Selection("2.weight", 4, 5),))
    assert "2.weight" in ratio_table(state, pinned).columns


def test_frozen_rows_give_way_to_training() -> None:
    state = state_after(layered(3), norms(1, *[1.0] * 6), norms(2, None, 1.0, None, None, None, 1.0))
    for index in range(6):
        apply(state, ev.GradientFiguresMeasured(1.0, 1, (figures(index, 0.1),)))
    assert ratio_table(state, PlotOptions(Selection("Net", 0, 6))).columns[1:] == ("0.bias", "2.bias")
    assert ratio_table(state, PlotOptions(Selection("1", 2, 4))).columns[1:] == ("1.weight", "1.bias")


def test_what_is_watched_has_gradient_and_is_bounded() -> None:
    state = state_after(layered(20), norms(1, *[1.0, None] * 20))
    everything = Selection("Net", 0, 40)
    assert to_watch(state.tree, [everything]) == tuple(f"{i}.weight" for i in range(16))
    assert to_watch(state.tree, [Selection("3.bias", 7, 8)]) == ()
    plot = ratio_plot(state, PlotOptions(Selection("3.bias", 7, 8)), 76, 20)
    assert plot.request is None
    assert "no gradient" in text(plot.above)


def test_view_without_numbers_says_what_will_fill_it() -> None:
    state = state_after(layered(1), norms(1, 1.0, 1.0))
    options = PlotOptions(Selection("0.weight", 0, 1))
    assert "next sampled step" in text(ratio_plot(state, options, 200, 20).above)
    apply(state, ev.PauseChanged(1.0, 1, True))
    assert "n runs one step" in text(histogram_plot(state, options, 200, 20).above)
    apply(state, ev.RunEnded(2.0, 1, 0, None))
    assert "the run ended before" in text(ratio_plot(state, options, 200, 20).above)


# Histograms


def test_histogram_is_by_size_without_zero() -> None:
    state = state_after(layered(1), norms(1, 1.0, 1.0))
    own = histogram(0, bins={30: 60, 31: 20}, zeros=10, nan=6, inf=4, positive=44)
    apply(state, ev.GradientHistogramsMeasured(1.0, 5, (own,)))
    plot = histogram_plot(state, PlotOptions(Selection("0.weight", 0, 1)), 110, 20)
    (series,) = plot.request.series
    high = [(x, y) for x, y in zip(series.xs, series.ys) if y]
    # 2**(LOWEST + 30) to twice that has 60 %, the next bin 20 %; nothing else is drawn.
    assert {y for _, y in high} == {60.0, 20.0}
    low, middle, top = ((LOWEST + at) * math.log10(2) for at in (30, 31, 32))
    assert all(low <= x <= middle if y == 60.0 else middle <= x <= top for x, y in high)
    words = text(plot.above + plot.below)
    assert "100 elements" in words
    assert "zero 10%" in words
    assert "positive 44%" in words
    assert "NaN 6.0%" in words
    assert "Inf 4.0%" in words


def test_sample_counts_for_what_it_represents() -> None:
    state = state_after(layered(1), norms(1, 1.0, 1.0))
    sampled = histogram(0, bins={30: 10}, elements=1_000)
    whole = histogram(1, bins={30: 20}, zeros=30)
    apply(state, ev.GradientHistogramsMeasured(1.0, 5, (sampled, whole)))
    spread = spread_of(state, PlotOptions(Selection("0", 0, 2)))
    assert (spread.counts[30], spread.zeros, spread.elements) == (1_020.0, 30.0, 1_050)
    assert "estimated" in text(histogram_plot(state, PlotOptions(Selection("0", 0, 2)), 100, 20).above)


def test_the_table_of_a_histogram_adds_up() -> None:
    state = state_after(layered(1), norms(1, 1.0, 1.0))
    apply(
        state, ev.GradientHistogramsMeasured(1.0, 5, (histogram(0, bins={0: 2, 55: 3}, zeros=1, smaller=4, larger=5),))
    )
    table = histogram_table(state, PlotOptions(Selection("0.weight", 0, 1)))
    assert sum(float(row[3] or 0) for row in table.rows) == 15
    by_name = {row[0]: row for row in table.rows}
    assert by_name["1"] == ("1", 2.0**LOWEST, 2.0 ** (LOWEST + 1), 2.0)
    assert by_name["zero"][3] == 1.0
    assert len(EDGES) == BINS + 1


def test_elements_that_float16_cannot_hold_well_are_told() -> None:
    model = layered(1)
    half = [type(p)(p.path, p.names, p.shape, "float16", p.count, p.bytes, p.module) for p in model.parameters]
    state = state_after(type(model)(model.at, model.step, model.models, model.modules, tuple(half)), norms(1, 1.0, 1.0))
    below, above = -15 - LOWEST, -14 - LOWEST
    apply(state, ev.GradientHistogramsMeasured(1.0, 5, (histogram(0, bins={below: 25, above: 75}),)))
    assert "25% is below 6.1e-05" in text(
        histogram_plot(state, PlotOptions(Selection("0.weight", 0, 1)), 100, 20).below
    )


@given(
    st.dictionaries(st.integers(0, BINS - 1), st.integers(1, 10**9)),
    st.integers(0, 9),
    st.booleans(),
    st.integers(24, 150),
)
def test_any_histogram_can_be_drawn(bins: dict[int, int], zeros: int, log: bool, width: int) -> None:
    state = state_after(layered(1), norms(1, 1.0, 1.0))
    apply(state, ev.GradientHistogramsMeasured(1.0, 5, (histogram(0, bins=bins, zeros=zeros or 1),)))
    plot = histogram_plot(state, PlotOptions(Selection("0.weight", 0, 1), other_scale=log), width, 20)
    assert plot.request is not None
    lines = PLOTTER.picture("any", plot.request).lines
    assert all(line_width(line) == width for line in lines)


# Depth


def test_layers_are_in_tree_or_call_order() -> None:
    state = state_after(layered(4), norms(1, *[1.0] * 8), norms(9, 3.0, 4.0, 0.3, 0.4, None, None, 0.03, 0.04))
    layers = layers_of(state, "tree")
    assert [state.tree.modules[m].path for m in layers.modules] == ["0", "1", "2", "3"]
    assert layers.now == pytest.approx((5.0, 0.5, None, 0.05))
    assert layers.then == pytest.approx((math.sqrt(2),) * 4)
    count = len(state.tree.modules)
    called = (1, 5, 4, -1, 2)
    apply(state, ev.GradientFlowMeasured(1.0, 9, 0, "p" * count, "g" * count, "1" * count, called, (0,)))
    by_call = layers_of(state, "calls")
    assert [state.tree.modules[m].path for m in by_call.modules] == ["3", "1", "0", "2"]


def blocks(count: int = 3) -> ev.ModelsFound:
    """An embedding, blocks of a norm and a layer each, and a head."""
    parts = (Node("norm", "LayerNorm", (("weight", (6,)),)), Node("fc", "Linear", (("weight", (6, 6)),)))
    stack = Node("blocks", "ModuleList", (), tuple(Node(str(i), "Block", (), parts) for i in range(count)))
    ends = Node("wte", "Embedding", (("weight", (9, 6)),)), Node("head", "Linear", (("weight", (6, 2)),))
    return found(Node("Net", "Net", (), (ends[0], stack, ends[1])))


def test_layers_of_kind_stand_together() -> None:
    state = state_after(blocks(), norms(1, 9.0, 1.0, 100.0, 2.0, 200.0, 3.0, 300.0, 5.0))
    plot = depth_plot(state, PlotOptions(), 110, 24)
    assert [(series.xs, series.ys) for series in plot.request.series] == [
        ((1.0, 2.0, 3.0), (1.0, 2.0, 3.0)),
        ((4.0, 5.0, 6.0), (100.0, 200.0, 300.0)),
        ((7.0,), (9.0,)),
        ((8.0,), (5.0,)),
    ]
    assert [(line.x, line.label) for line in plot.request.verticals] == [(1.0, "norm"), (4.0, "fc"), (7.0, "others")]
    assert (plot.request.x_label, plot.request.y_label) == ("layer", "‖grad‖")
    assert "layers of one kind together" in plot.note
    in_order = depth_plot(state, PlotOptions(order="tree"), 110, 24)
    assert [series.ys for series in in_order.request.series] == [(9.0, 1.0, 100.0, 2.0, 200.0, 3.0, 300.0, 5.0)]
    assert in_order.request.verticals == ()


def test_kind_without_gradient_is_left_out() -> None:
    state = state_after(blocks(), norms(1, 9.0, None, 100.0, None, 200.0, None, 300.0, 5.0))
    plot = depth_plot(state, PlotOptions(), 110, 24)
    assert [(line.x, line.label) for line in plot.request.verticals] == [(1.0, "fc"), (4.0, "others")]
    state = state_after(layered(30), norms(1, *[1.0] * 60))
    later = depth_plot(state, PlotOptions(window=Window(9.0, 20.0)), 110, 20)
    assert [line.x for line in later.request.verticals] == [11.0]


def test_extremes_are_named_with_what_lies_between_them() -> None:
    state = state_after(layered(3), norms(1, 3.0, 4.0, 0.3, 0.4, 0.003, 0.004))
    plot = depth_plot(state, PlotOptions(Selection("1", 2, 4)), 110, 20)
    words = text(plot.below)
    assert "Largest 5.00 at 0 (layer 1), smallest 0.0050" in words
    assert plot.request.series[-1].color == "curve-2"
    assert plot.request.series[-1].ys == (0.5,)


def test_layers_without_gradient_are_left_out_and_counted() -> None:
    state = state_after(layered(4), norms(1, 3.0, 4.0, None, 6.0, None, None, None, None))
    assert "2 more without a gradient" in text(depth_plot(state, PlotOptions(), 130, 20).below)
    table = depth_table(state, PlotOptions())
    assert table.columns == ("layer", "module", "norm_step_1")
    assert table.rows == ((1, "0", 5.0), (2, "1", 6.0))


def test_single_layer_is_said_not_drawn() -> None:
    """A prompt before a frozen encoder: a chart of one point looks empty."""
    state = state_after(
        layered(3), norms(1, 3.0, None, None, None, None, None), norms(2, 5.0, None, None, None, None, None)
    )
    plot = depth_plot(state, PlotOptions(), 200, 20)
    assert plot.request is None
    assert text(plot.above).startswith("Only 0.weight has a gradient (norm 5.00 at step 2,")
    assert depth_table(state, PlotOptions()).rows == ((1, "0", 5.0, 3.0),)


def test_depth_is_not_compared_with_former_models() -> None:
    state = state_after(layered(2), norms(1, 1.0, 1.0, 1.0, 1.0))
    tree, kept = state.tree, (0, 1, 2, 3)
    models = (replace(tree.models[0], number=7),)
    apply(state, ev.ModelsFound(2.0, 1, models, tree.modules, tree.parameters, (), (0, 1, 2), kept))
    for step, value in ((2, 3.0), (3, 4.0)):
        apply(state, norms(step, value, 0.0, value, 0.0))
    layers = layers_of(state, "tree")
    assert (layers.first_step, layers.then, layers.step, layers.now) == (2, (3.0, 3.0), 3, (4.0, 4.0))


def test_norms_over_steps_break_at_models() -> None:
    state = state_after(layered(2), norms(1, 1.0, 1.0, 1.0, 1.0), norms(90, 1.0, 1.0, 1.0, 1.0))
    tree = state.tree
    models = (replace(tree.models[0], number=7),)
    apply(state, ev.ModelsFound(2.0, 90, models, tree.modules, tree.parameters, (), (0, 1, 2), (0, 1, 2, 3)))
    apply(state, norms(95, 1.0, 1.0, 1.0, 1.0))
    state.step = 120
    plot = norm_plot(state, PlotOptions(), 110, 20)
    assert [(series.xs, series.stride) for series in plot.request.series] == [((1.0, 90.0), 1), ((95.0,), 1)]
    assert [(line.x, line.label) for line in plot.request.verticals] == [(90.0, "Net")]
    assert plot.range == (1.0, 120.0), "up to the present step, which was not measured"
    later = norm_plot(state, PlotOptions(window=Window(span=20.0)), 110, 20)
    assert later.request.verticals == ()


def test_average_begins_again_with_other_models() -> None:
    state = state_after(layered(2), norms(1, 8.0, 8.0, 8.0, 8.0))
    tree = state.tree
    models = (replace(tree.models[0], number=7),)
    apply(state, ev.ModelsFound(2.0, 1, models, tree.modules, tree.parameters, (), (0, 1, 2), (0, 1, 2, 3)))
    apply(state, norms(2, 1.0, 1.0, 1.0, 1.0))
    assert "total 2.00 EMA 2.00" in text(norm_plot(state, PlotOptions(smoothing=0.9), 110, 20).above)
    assert "total 16.0 EMA 16.0" in text(norm_plot(state, PlotOptions(smoothing=0.9, cursor=1.0), 110, 20).above)


def test_a_window_over_layers() -> None:
    state = state_after(layered(30), norms(1, *[1.0] * 60))
    plot = depth_plot(state, PlotOptions(window=Window(9.0, 20.0)), 110, 20)
    assert plot.range == (1.0, 30.0)
    assert "layers 11–20" in plot.note
    assert [row[0] for row in depth_table(state, PlotOptions(window=Window(9.0, 20.0))).rows] == list(range(11, 21))


def test_first_layer_that_is_not_finite_is_named() -> None:
    state = state_after(layered(3), norms(1, 3.0, 4.0, math.nan, 0.4, math.inf, 1.0, total=math.nan))
    words = text(depth_plot(state, PlotOptions(), 110, 20).below)
    assert "NaN or Inf in 2, " in words
    assert "Finite only in 0 (layer 1)" in words


def test_layers_of_large_model_are_split() -> None:
    state, options = state_after(layered(5), norms(1, *[1.0] * 10)), PlotOptions(kept=KeptLayers(at_once=2))
    drawn = []
    for step in range(2, 10):
        drawn.append(text(depth_plot(state, options, 110, 20).above))
        apply(state, norms(step, *[float(step)] * 10))
    # Five layers are three parts, and the plot is made in a drawing of its own; the next begins with the newest row then.
    steps = [next(step for step in range(9, 0, -1) if f"step {step}" in words) for words in drawn]
    assert steps == [1, 1, 1, 1, 2, 2, 2, 2]
    layers = options.kept.layers(state)
    assert layers.step == 6
    assert layers.now == pytest.approx([6 * math.sqrt(2)] * 5)
    apply(state, ev.RunEnded(9.0, 9, 0, None))
    assert f"step {9}" in text(depth_plot(state, options, 110, 20).above)


def test_clipping_at_infinity_only_asks_norm() -> None:
    state = state_after(layered(1), norms(1, 3.0, 4.0, before_clipping=5.0, clipped_at=math.inf))
    assert norm_table(state, PlotOptions()).columns == ("optimizer_step", "total_norm", "norm_before_clipping")


def test_average_covers_all_steps() -> None:
    """Of each group of older steps the one is kept that stands out, here those with a loss of 10 in place of 1."""
    state = RunState()
    for step in range(1, 40_001):
        state.loss.append(step, 10.0 if step % 32 == 7 else 1.0)
    state.step = 40_000
    plot = loss_plot(state, PlotOptions(smoothing=0.97), 110, 20)
    raw, average = plot.request.series
    middle = len(average.ys) // 2
    assert average.ys[middle] == pytest.approx(1 + 9 / 32, rel=0.2)
    assert max(value or 0.0 for value in raw.ys) == 10.0
    assert "if they stand out" in plot.note
