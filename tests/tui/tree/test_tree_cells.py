from __future__ import annotations

import math
from dataclasses import replace

import pytest
from helpers.events import gradient_stats
from helpers.fakes import coop_model, coop_run, row_of, training_step
from helpers.lines import line_text
from helpers.states import state_after
from hypothesis import given
from hypothesis import strategies as st

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetGroup
from gradtui.protocol.freezes import RowsInForce
from gradtui.protocol.vocabulary import GroupSettings, OptimizerInfo
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import NUMBER_WIDTH, number_text
from gradtui.tui.rendering.lines import Line, line_width
from gradtui.tui.rendering.palette import STALE, STATE_ROLES
from gradtui.tui.tree.sorting import sorted_rows
from gradtui.tui.tree.state_cell import FREEZE, MIXED, UNFREEZE
from gradtui.tui.tree.tree_cells import RECOMPUTED, PendingMarks, TreeCells
from gradtui.tui.tree.tree_columns import COLUMNS, MARGIN, SPARK_WIDTH, columns_for
from gradtui.tui.tree.tree_rows import TreeRows
from gradtui.tui.tree.tree_totals import TreeTotals

MODEL = coop_model()


def cells(width: int, *more: ev.Event, steps: int = 10) -> TreeCells:
    state = state_after(*coop_run(steps), *more)
    totals = TreeTotals(state.tree, SPARK_WIDTH)
    totals.update(state)
    return TreeCells(state.tree, TreeRows(state.tree, room=10_000), totals, columns_for(width))


@given(st.integers(min_value=20, max_value=200))
def test_columns_take_exactly_the_width(width: int) -> None:
    columns = columns_for(width)
    assert line_width(columns.header()) == width
    assert MARGIN + columns.name + sum(column.width + 1 for column in columns.others) == width
    cells_of_all = [cell for column in columns.others for cell in columns.cells_of(column.key)]
    assert len(set(cells_of_all)) == sum(column.width for column in columns.others)


@pytest.mark.parametrize("width", [24, 36, 60, 84, 130])
def test_every_row_takes_exactly_the_width(width: int) -> None:
    made = cells(width)
    assert {line_width(made.line(row)) for row in made.rows.rows} == {width}


def test_columns_come_by_priority_as_there_is_room() -> None:
    for width in range(20, 160):
        shown = {column.key for column in columns_for(width).others}
        assert shown == {"state", *COLUMNS[: len(shown) - 1]}, "the most important ones"
    assert {"count", "norm", "state"} == {column.key for column in columns_for(36).others}
    assert {column.key for column in columns_for(150).others} == {"state", *COLUMNS}


def test_the_user_chooses_the_columns() -> None:
    assert [column.key for column in columns_for(150, ("saved", "norm")).others] == ["saved", "state", "norm"]


def test_the_column_that_sorts_has_an_arrow() -> None:
    assert "‖grad‖▾" in line_text(columns_for(84).header("norm"))
    assert line_width(columns_for(84).header("norm")) == 84


def checkpointed(path: str, again: int | None, inputs: int) -> ev.SavedBytesMeasured:
    """A measurement in which one module is within a checkpointed region."""
    index = row_of(MODEL, path)
    nothing = (0,) * len(MODEL.modules)
    return ev.SavedBytesMeasured(
        9.0, 9, nothing, 0, (), (*nothing[:index], again, *nothing[index + 1 :]),
        (*nothing[:index], inputs, *nothing[index + 1 :]),
    )  # fmt: skip


def test_recomputed_has_mark_in_column() -> None:
    made = cells(130, checkpointed("text_encoder.blocks.3", 4096, 1024))
    for path, marked in (
        ("", True), ("text_encoder", True), ("text_encoder.blocks.3", True), ("text_encoder.blocks.2", False),
        ("image_encoder", False),
    ):  # fmt: skip
        line = line_text(made.line(row_of(MODEL, path)))
        assert (f" {RECOMPUTED}" in line) == (RECOMPUTED in line) == marked, path
        assert line_width(made.line(row_of(MODEL, path))) == 130
    assert RECOMPUTED not in line_text(made.line(row_of(MODEL, "ctx")))


def test_row_that_was_drawn_before_gets_mark_too() -> None:
    state = state_after(*coop_run(10))
    totals = TreeTotals(state.tree, SPARK_WIDTH)
    made = TreeCells(state.tree, TreeRows(state.tree, room=10_000), totals, columns_for(130))
    row = row_of(MODEL, "text_encoder.blocks.3")
    shown = []
    for event in (None, checkpointed("text_encoder.blocks.3", 4096, 1024)):
        if event is not None:
            apply(state, event)
        totals.update(state)
        shown.append(RECOMPUTED in line_text(made.line(row)))
    assert shown == [False, True]


def test_a_parameter_row_says_what_the_parameter_is() -> None:
    line = line_text(cells(130).line(row_of(MODEL, "text_encoder.text_projection")))
    for part in ("passes", "text_projection", "256×256", "f32", "65.5k", "256 KiB"):
        assert part in line


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (110, "ctx trains 1,024 of 33,024 rows "),
        (84, "ctx 1,024 of 33,024 rows "),
        (60, "ctx 1,024/33,024 "),
        (24, "ctx rows "),
    ],
)
def test_parameter_row_counts_training_rows(width: int, shown: str) -> None:
    row = row_of(MODEL, "ctx")
    rows = ev.FrozenRowsChanged(2.0, 11, (RowsInForce(~row, "0:32000", 32_000, 33_024),))
    assert shown in line_text(cells(width, rows).line(row))
    assert "rows" not in line_text(cells(width, rows, ev.FrozenRowsChanged(2.0, 12, ())).line(row))


def test_frozen_row_elements_are_untrained() -> None:
    row = row_of(MODEL, "ctx")
    made = cells(130, ev.FrozenRowsChanged(2.0, 11, (RowsInForce(~row, "0:3", 3, 4),)))
    assert "25% trains" in line_text(made.line(row))
    assert made.totals.trainable(range(~row, ~row + 1)) == 256
    assert made.totals.trainable(range(len(MODEL.parameters))) == 256


def test_a_module_row_sums_its_subtree() -> None:
    made = cells(130)
    line = line_text(made.line(row_of(MODEL, "")))
    elements = sum(info.count for info in MODEL.parameters)
    assert f"{elements / 1e6:.2f}M" in line
    assert "1,024" in line
    assert "CoOp" in line


def test_single_trained_norm_rises_through_modules() -> None:
    made = cells(60)
    norm = next(n for n in made.tree.norms or () if n is not None)
    shown = f"{norm:.3f}"
    assert shown in line_text(made.line(row_of(MODEL, "ctx")))
    assert shown in line_text(made.line(row_of(MODEL, "")))


@pytest.mark.parametrize(("width", "parts"), [(60, ("trains", "passes", "off")), (36, ("T", "F", "C"))])
def test_state_is_word_or_letter_and_colour(width: int, parts: tuple[str, ...]) -> None:
    made = cells(width)
    for path, letter, part in zip(("ctx", "text_encoder.text_projection", "image_encoder.fc.bias"), "TFC", parts):
        line = made.line(row_of(MODEL, path))
        assert any(span.strip() == part and role == STATE_ROLES[letter] for span, role in line)


def test_block_stack_is_one_row() -> None:
    count = len(MODEL.parameters)
    norms: list[float | None] = [None] * count
    for number in range(8):
        norms[~row_of(MODEL, f"text_encoder.blocks.{number}.ln_1.weight")] = 10.0**number
    made = cells(84, ev.GradientsMeasured(9.0, 11, 1.0, None, tuple(norms)))
    stack = row_of(MODEL, "text_encoder.blocks")
    assert "blocks ModuleList" in line_text(made.line(stack))
    made.rows.set_folded(stack, True)
    assert "▸ blocks ×8 ▁▂▃▄▅▆▇█ " in line_text(made.line(stack))


def test_a_stack_without_norms_shows_its_saved_bytes() -> None:
    made = cells(84)
    stack = row_of(MODEL, "text_encoder.blocks")
    made.rows.set_folded(stack, True)
    (strip,) = [span.strip() for span, role in made.line(stack) if role == "activations" and "MiB" not in span]
    assert len(strip) == 8
    assert len(set(strip)) == 1, "each block saves as much"


def test_sorted_list_has_paths_instead_of_tree() -> None:
    made = cells(84)
    row = row_of(MODEL, "text_encoder.text_projection")
    made.rows.sort([row])
    assert "text_encoder.text_projection" in line_text(made.line(row))
    assert line_width(made.line(row)) == 84


def test_tied_weights_are_marked_and_shown_once() -> None:
    made = cells(84)
    line = line_text(made.line(row_of(MODEL, "text_encoder.token_embedding.weight")))
    assert "≡2" in line
    assert sum("token_embedding" in made.rows.path(row) for row in made.rows.rows) == 2


def test_non_finite_norms_are_errors() -> None:
    norms: list[float | None] = [None] * len(MODEL.parameters)
    row = row_of(MODEL, "ctx")
    norms[~row] = math.nan
    made = cells(60, ev.GradientsMeasured(9.0, 11, math.nan, None, tuple(norms)))
    assert ("    NaN", "error") in made.line(row)
    assert ("    NaN", "error") in made.line(row_of(MODEL, ""))


def test_unknown_is_a_dash() -> None:
    state = RunState()
    apply(state, MODEL)
    totals = TreeTotals(state.tree, SPARK_WIDTH)
    totals.update(state)
    made = TreeCells(state.tree, TreeRows(state.tree, room=10_000), totals, columns_for(130))
    line = line_text(made.line(row_of(MODEL, "")))
    assert line.count("–") == 5  # state, trainable, saved, norm, ratio


def test_changed_row_is_made_anew() -> None:
    made = cells(60)
    row, other = row_of(MODEL, "ctx"), row_of(MODEL, "logit_scale")
    before, other_before = made.line(row), made.line(other)
    made.pending = PendingMarks({~row: False})
    assert made.line(row) != before
    assert FREEZE in line_text(made.line(row))
    assert made.line(other) is other_before


def test_pending_marks_of_ranges() -> None:
    marks = PendingMarks({3: True, 4: True, 9: False})
    assert [marks.mark(0, 3), marks.mark(0, 4), marks.mark(5, 12), marks.mark(4, 10)] == ["", UNFREEZE, FREEZE, MIXED]


@given(st.dictionaries(st.integers(0, 50), st.booleans()), st.integers(0, 50), st.integers(0, 50))
def test_pending_marks_equal_a_plain_search(wishes: dict[int, bool], a: int, b: int) -> None:
    first, last = min(a, b), max(a, b)
    inside = {wish for index, wish in wishes.items() if first <= index < last}
    expected = MIXED if len(inside) == 2 else "" if not inside else UNFREEZE if inside.pop() else FREEZE
    assert PendingMarks(wishes).mark(first, last) == expected


def passing_cells(width: int, norm: float) -> TreeCells:
    """Return the cells of a run whose frozen modules all pass a gradient of this norm on."""
    state = state_after(*coop_run(10))
    assert state.tree.gradient_flow is not None
    count = len(state.tree.modules)
    apply(state, replace(state.tree.gradient_flow, step=11, passing=(norm,) * count))
    totals = TreeTotals(state.tree, SPARK_WIDTH)
    totals.update(state)
    return TreeCells(state.tree, TreeRows(state.tree, room=10_000), totals, columns_for(width))


@pytest.mark.parametrize(("norm", "shown"), [(0.0371, "→0.037"), (1.23e-10, "→1e-10"), (math.nan, "→NaN"), (0.0, "→0")])
def test_passing_module_shows_its_norm(norm: float, shown: str) -> None:
    made = passing_cells(84, norm)
    row = row_of(made.tree, "text_encoder.ln_final")
    line = made.line(row)
    assert line_width(line) == 84
    (cell,) = [part for part in line if "→" in part[0]]
    assert cell[0].strip() == shown
    assert cell[1] == ("error" if math.isnan(norm) else "muted")


def test_a_gradient_that_is_stored_has_no_arrow() -> None:
    made = passing_cells(84, 0.5)
    trained = next(i for i in range(len(made.tree.parameters)) if made.tree.norms and made.tree.norms[i] is not None)
    module = made.tree.parameters[trained].module
    assert "→" not in line_text(made.line(module))


def role_of(line: Line, shown: str) -> str:
    return next(role for part, role in line if part.strip() == shown)


def state_and_cells(*more: ev.Event, steps: int = 10) -> tuple[RunState, TreeCells]:
    state = state_after(*coop_run(steps), *more)
    totals = TreeTotals(state.tree, SPARK_WIDTH)
    totals.update(state)
    return state, TreeCells(state.tree, TreeRows(state.tree, room=10_000), totals, columns_for(84))


def steps_pass(state: RunState, made: TreeCells, steps: int) -> None:
    """Let steps pass that measure nothing, at the rate of the run: 24 a second."""
    apply(state, replace(training_step(MODEL, "", state.step + steps)[0], steps=steps, micro_steps=steps))
    state.steps_per_second = RATE
    made.totals.update(state)


RATE = 24.0


def test_norm_dims_after_two_seconds() -> None:
    state, made = state_and_cells()
    ctx = ~next(index for index, info in enumerate(MODEL.parameters) if info.path == "ctx")
    norm = number_text(next(n for n in state.tree.norms or () if n is not None)).strip()
    steps_pass(state, made, int(2 * RATE) - 1)
    assert (role_of(made.line(ctx), norm), role_of(made.line(0), norm)) == ("text", "muted")
    steps_pass(state, made, 1)
    assert (role_of(made.line(ctx), norm), role_of(made.line(0), norm)) == (STALE, STALE)


def test_ratio_dims_apart_from_norm() -> None:
    figures = ev.GradientFiguresMeasured(1.0, 1, (gradient_stats(0, 0.0),))
    ctx = next(index for index, info in enumerate(MODEL.parameters) if info.path == "ctx")
    figures = replace(figures, figures=(replace(figures.figures[0], parameter=ctx),))
    state, made = state_and_cells(figures, steps=100)
    norm = number_text(next(n for n in state.tree.norms or () if n is not None)).strip()
    assert (role_of(made.line(~ctx), norm), role_of(made.line(~ctx), "0")) == ("text", STALE)
    apply(state, replace(figures, step=100))
    made.totals.update(state)
    assert role_of(made.line(~ctx), "0") == "text"


def test_row_has_rates_of_its_groups() -> None:
    """`ctx` has a group of its own; half of the others are in another one, and the rest in none."""
    ctx = next(index for index, info in enumerate(MODEL.parameters) if info.path == "ctx")
    others = [index for index in range(len(MODEL.parameters)) if index != ctx][::2]
    found = ev.OptimizersFound(1.0, 1, (OptimizerInfo("Adam", 2, (ctx, *others), 0, (0, *[1] * len(others))),))
    state = state_after(MODEL, found)
    totals = TreeTotals(state.tree, SPARK_WIDTH)
    totals.update(state)
    assert totals.rates(range(ctx, ctx + 1)) == [], "no rate was read"
    apply(state, ev.GroupsRead(1.0, 1, ((GroupSettings(1e-3, None), GroupSettings(2.4e-5, None)),)))
    totals.update(state)
    assert totals.rates(range(ctx, ctx + 1)) == [1e-3]
    made = TreeCells(state.tree, TreeRows(state.tree, room=10_000), totals, columns_for(84, ("lr",)))
    shown = made.columns.cells_of("lr")
    assert [line_text(made.line(row))[shown.start : shown.stop].strip() for row in (~ctx, 0, ~others[0])] == [
        "1e-3", "2e-5…1e-3", "2.4e-5",
    ]  # fmt: skip
    without = next(index for index in range(len(MODEL.parameters)) if index not in (ctx, *others))
    assert line_text(made.line(~without))[shown.start : shown.stop].strip() == "–"
    order = sorted_rows(state.tree, totals, "lr")
    assert (order[0], order[1], order[-1] in [~each for each in others]) == (~ctx, ~others[0], False)


def test_ratio_far_from_usual_one_is_coloured() -> None:
    figures = ev.GradientFiguresMeasured(1.0, 1, (gradient_stats(0, 0.672),))
    ctx = next(index for index, info in enumerate(MODEL.parameters) if info.path == "ctx")
    _, made = state_and_cells(replace(figures, figures=(replace(figures.figures[0], parameter=ctx),)))
    assert role_of(made.line(~ctx), "0.672") == "warning"


def test_values_are_dim_until_measured() -> None:
    state, made = state_and_cells(ev.CommandApplied(2.0, 10, SetGroup(1, 0, 0, 1e-4), "lr", (0,)))
    ctx = ~next(index for index, info in enumerate(MODEL.parameters) if info.path == "ctx")
    norm = number_text(next(n for n in state.tree.norms or () if n is not None)).strip()
    assert role_of(made.line(ctx), norm) == STALE
    for event in training_step(MODEL, state.tree.states, 11):
        apply(state, event)
    made.totals.update(state)
    norm = number_text(next(n for n in state.tree.norms or () if n is not None)).strip()
    assert role_of(made.line(ctx), norm) == "text"


def test_norm_of_frozen_parameter_is_dash() -> None:
    state, made = state_and_cells()
    ctx = ~next(index for index, info in enumerate(MODEL.parameters) if info.path == "ctx")
    tree = state.tree
    frozen = ev.ParametersClassified(2.0, 10, tree.states.replace("T", "-"), tree.trainable.replace("1", "0"))
    apply(state, frozen)
    made.totals.update(state)
    shown = line_text(made.line(ctx))[-2 * (NUMBER_WIDTH + 1) :].split()
    assert shown == ["–", "–"], "norm and ratio"


def test_old_passing_gradient_is_dim() -> None:
    made = passing_cells(84, 0.25)
    state = RunState(tree=made.tree, step=11, steps_per_second=RATE)
    row = row_of(MODEL, "text_encoder.blocks.3")
    made.totals.update(state)
    assert role_of(made.line(row), "→0.250") == "muted"
    state.step = 11 + int(2 * RATE)
    made.totals.update(state)
    assert role_of(made.line(row), "→0.250") == STALE
