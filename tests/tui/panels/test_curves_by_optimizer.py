"""The curves where several optimizers step in turns: what is drawn of each, its colour, and its values in the legend."""

from __future__ import annotations

import pytest
from helpers.app_session import session
from helpers.lines import line_text
from helpers.optimizer_runs import gan, loss_at, norm_at, per_parameter, sac, stages, steps
from helpers.states import state_after

from gradtui.protocol import events as ev
from gradtui.run.state.optimizers.optimizer_turns import optimizer_turns
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import number_text
from gradtui.tui.panels.curves import curves_request, curves_title
from gradtui.tui.panels.curves_legend import RowNorms
from gradtui.tui.panels.header import HeaderState, header_line
from gradtui.tui.panels.optimizer_legend import optimizer_legend
from gradtui.tui.plots.losses import loss_plot, loss_table
from gradtui.tui.plots.norms import norm_curves, norm_plot, norm_table
from gradtui.tui.plots.optimizers import ROLES, on_one_axis, range_of
from gradtui.tui.plots.options import PlotOptions
from gradtui.tui.plots.rows import CLIP_ROLE, LOSS_ROLE, TOTAL_ROLE, Selection
from gradtui.tui.rendering import Line, line_width


def number(value: float) -> str:
    return number_text(value).strip()


def legend(state: RunState, width: int, most: int = 1, row: RowNorms | None = None) -> list[Line]:
    return optimizer_legend(state, optimizer_turns(state), row, width, most)


def test_gan_optimizers_have_coloured_curves() -> None:
    request = curves_request(state_after(*gan(40)), None, 60, 12)
    d, g = ROLES[:2]
    own = {1: tuple(map(float, range(1, 41, 2))), 0: tuple(map(float, range(2, 41, 2)))}
    for lane, value in ((request.above, loss_at), (request.series, norm_at)):
        # The first optimizer is drawn last, and lies on top.
        assert [series.color for series in lane] == [g, d]
        for series, optimizer in zip(lane, (0, 1)):
            assert series.xs == own[optimizer]
            assert series.ys == tuple(value(optimizer, int(step)) for step in series.xs)


def test_very_different_losses_have_own_lanes() -> None:
    state = state_after(*sac(40, sizes=(100.0, 1.0, 0.01)))
    request = curves_request(state, None, 60, 12)
    assert request.has_lanes
    assert [series.color for series in request.above] == [*ROLES[:3]]
    assert curves_title(state) == "separate scales · L2"
    assert not curves_request(state_after(*gan(40)), None, 60, 12).has_lanes
    assert curves_title(state_after(*gan(40))) == "L2"


@pytest.mark.parametrize(
    ("curves", "is_common"),
    [
        ([[1.0, 2.0], [1.5, 3.0]], True),
        ([[1.0, 2.0], [100.0, 300.0]], False),
        ([[1.0, 2.0], [-300.0, -100.0]], False),
        ([[1.0, 2.0], [1.9, 1.95]], False),
        ([[1.0, 2.0], [5.0]], True),
        ([[1.0, 2.0], [None, float("nan")]], True),
        ([], True),
    ],
)
def test_when_losses_can_be_read_on_one_axis(curves: list[list[float | None]], is_common: bool) -> None:
    assert on_one_axis(map(range_of, curves)) is is_common


def test_one_optimizer_and_stages_look_as_they_do() -> None:
    request = curves_request(state_after(*stages(20)), None, 60, 12)
    assert [series.color for series in request.above] == [LOSS_ROLE]
    assert [series.color for series in request.series] == [TOTAL_ROLE]
    assert request.above[0].xs == tuple(map(float, range(1, 41)))


def test_main_of_many_optimizers_is_drawn() -> None:
    state = state_after(*per_parameter(20))
    request = curves_request(state, None, 60, 12)
    assert [len(request.above), len(request.series)] == [1, 1]
    assert curves_title(state) == "L2 of 1 of 40 optimizers"


def test_title_says_how_loss_combines_several_backwards() -> None:
    assert curves_title(state_after(*gan(8, of=("mean", "mean")))) == "loss: mean of micro-steps · L2"


@pytest.mark.parametrize(("width", "most"), [(100, 1), (70, 2), (52, 1), (52, 2), (27, 1), (20, 1), (12, 1)])
def test_the_legend_fits(width: int, most: int) -> None:
    for events in (gan(40), sac(40)):
        lines = legend(state_after(*events), width, most)
        assert 1 <= len(lines) <= most
        assert all(line_width(line) <= width for line in lines)


@pytest.mark.parametrize("width", [8, 1])
def test_where_nothing_fits_the_first_name_is_left(width: int) -> None:
    """The panel cuts it."""
    for events, name in ((gan(40), "Dis"), (sac(40), "qf1")):
        (line,) = legend(state_after(*events), width, 1)
        assert line_text(line).startswith(name)


@pytest.mark.parametrize("width", range(12, 120))
def test_values_of_different_steps_show_them(width: int) -> None:
    row = RowNorms("Generator.net.weight", [38], [0.123])
    (line,) = legend(state_after(*gan(40)), width, 1, row)
    text = line_text(line)
    if number(loss_at(1, 39)) in text:
        assert "@39–40" in text or ("@39" in text and "@40" in text)
    else:
        assert not any(character.isdigit() for character in text)
    assert ("0.123" in text) is ("@38" in text)


def test_range_leaves_out_common_beginning() -> None:
    events = [*gan(40), *steps([1, 0], 2, first=12_345)]
    for width in (29, 34):
        (line,) = legend(state_after(*events), width, 1)
        assert line_text(line).endswith(" @12,345–6")
        assert line_width(line) <= width


def test_values_have_the_step_of_their_optimizer() -> None:
    (line,) = legend(state_after(*gan(40)), 100)
    d, g = number(loss_at(1, 39)), number(loss_at(0, 40))
    dn, gn = number(norm_at(1, 39)), number(norm_at(0, 40))
    assert line_text(line).split() == [
        *("Loss", "Discriminator", d, "‖g‖", dn, "@39"),
        *("Generator", g, "‖g‖", gn, "@40"),
    ]
    assert dict(line)["Discriminator"] == ROLES[0]
    assert dict(line)["Generator"] == ROLES[1]


def test_loss_has_step_of_seldom_norms() -> None:
    before = line_text(legend(state_after(*gan(40)), 70)[0])
    state = state_after(*[*gan(40), ev.StepsMeasured(4.0, 41, (ev.StepFigures(41, 1, 0.75),))])
    assert line_text(legend(state, 70)[0]) == before
    assert f"{number(loss_at(1, 39))} ‖g‖ {number(norm_at(1, 39))} @39" in " ".join(before.split())


def test_norm_that_is_old_has_its_own_step() -> None:
    state = state_after(*[*gan(40), ev.StepsMeasured(4.0, 141, (ev.StepFigures(141, 1, 0.75),))])
    state.step = 141
    (line,) = legend(state, 100)
    assert f"Discriminator 0.750 @141 ‖g‖ {number(norm_at(1, 39))} @39" in line_text(line)


def test_the_row_is_there_if_it_fits() -> None:
    row = RowNorms("Generator.net.weight", [38], [0.123])
    wide, narrow = legend(state_after(*gan(40)), 120, 1, row), legend(state_after(*gan(40)), 70, 1, row)
    assert "Generator.net.weight ‖g‖ 0.123 @38" in line_text(wide[0])
    assert "weight" not in line_text(narrow[0])


@pytest.mark.parametrize("width", [80, 90, 100, 110, 120, 130, 140, 160, 200, 220])
def test_the_header_names_the_optimizer(width: int) -> None:
    """Below 140 columns the name has the place of the overhead."""
    one, other = (header_line(state_after(*events), HeaderState(), width) for events in (gan(40), sac(40)))
    text, alone = line_text(one), line_text(header_line(state_after(*gan(0)), HeaderState(), width))
    assert line_width(one) == line_width(other) == width
    assert f"loss Disc{'' if width == 160 else 'r'}" in text
    assert number(loss_at(1, 39)) in text
    assert ("lr " in text) is ("lr " in alone)
    assert text.find("lr ") == line_text(other).find("lr ")
    assert ("overhead" in text) is (width >= 140)
    assert "overhead" in alone


def test_plots_have_curve_and_column_for_each_optimizer() -> None:
    state, options = state_after(*gan(40)), PlotOptions()
    for plot in (loss_plot(state, options, 100, 20), norm_plot(state, options, 100, 20)):
        assert [series.color for series in plot.request.series] == [ROLES[1], ROLES[0]]
        words = line_text(plot.above[0]).split()
        assert words[1::4] == ["Discriminator", "Generator"]
        assert words[3::4] == ["@39", "@40"]
    table = loss_table(state, options)
    assert table.columns == ("optimizer_step", "loss Discriminator", "loss Generator")
    assert norm_table(state, options).columns == ("optimizer_step", "total_norm Discriminator", "total_norm Generator")


def test_named_optimizer_row_has_own_step() -> None:
    norms = ev.GradientsMeasured(4.0, 38, None, None, (0.3, 0.4, 0.1, 0.1))
    state = state_after(*[*gan(40), norms])
    options = PlotOptions(selection=Selection("Generator", 0, 2))
    curves = norm_curves(state, options)
    assert [curve.name for curve in curves] == ["Generator", "Discriminator", "Generator"]
    words = line_text(norm_plot(state, options, 140, 20).above[0]).split()
    assert words[1::4] == ["Discriminator", "Generator", "Generator"]
    assert words[3::4] == ["@39", "@40", "@38"]
    table = norm_table(state, options)
    assert table.columns == ("optimizer_step", "total_norm Discriminator", "total_norm Generator", "Generator")
    assert [row[1:] for row in table.rows if row[0] == 38] == [(None, norm_at(0, 38), 0.5)]


def test_plot_of_one_optimizer_loss() -> None:
    state, options = state_after(*stages(20)), PlotOptions()
    plot = loss_plot(state, options, 100, 20)
    assert [series.color for series in plot.request.series] == [LOSS_ROLE]
    assert loss_table(state, options).columns == ("optimizer_step", "loss")
    waiting = loss_plot(RunState(), options, 100, 20)
    assert waiting.request is None
    assert "Waiting for" in line_text(waiting.above[0])
    trained = RunState(step=3)
    assert "single number" in line_text(loss_plot(trained, options, 100, 20).above[0])


def test_total_before_clipping_needs_single_optimizer() -> None:
    clipped = ev.StepFigures(41, 1, 0.75, total=1.0, before_clipping=3.0, clipped_at=1.0)
    state = state_after(*[*gan(40), ev.StepsMeasured(4.0, 41, (clipped,))])
    assert len(state.before_clipping) == 1
    assert CLIP_ROLE not in {series.color for series in curves_request(state, None, 60, 12).series}


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (160, 50)])
async def test_the_panel_of_a_gan(size: tuple[int, int]) -> None:
    async with session(size, gan(40)) as run:
        lines = [line_text(line) for line in run.dashboard.gradients.lines_for(*run.dashboard.gradients.size)]
        assert number(loss_at(1, 39)) in lines[0]
        assert number(loss_at(0, 40)) in " ".join(lines[:2])
        await run.press("g", "tab")
        seen = run.app.screen.query_one("#plot")
        assert "Generator" in line_text(seen.lines_for(*seen.size)[0])  # type: ignore[attr-defined]


async def test_legend_has_selected_row_at_once() -> None:
    norms = tuple(0.1 * (index + 1) for index in range(4))
    measured = ev.GradientsMeasured(4.0, 40, 1.0, 0.5, norms)
    async with session((220, 50), [*gan(40), measured]) as run:
        panel = run.dashboard.gradients
        for index in (3, 1, 2):
            run.dashboard.tree_view.show_row(~index)
            await run.pilot.pause()
            assert panel.selection is not None
            legend = " ".join(line_text(line) for line in panel.lines[:3])
            assert f"{panel.selection.name} ‖g‖ {number(norms[index])}" in legend
