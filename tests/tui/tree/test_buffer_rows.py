"""Buffers have rows of their own in the tree, and nothing can be done to them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.fakes import coop_model, coop_run, row_of
from helpers.lines import line_text

from gradtui.protocol.vocabulary import BufferInfo
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree.rows import buffer_at, row_path
from gradtui.tui.explanations.explanations import explain
from gradtui.tui.requests.requests import Refusal, command_for, follow_gradient
from gradtui.tui.tree.tree_cells import TreeCells
from gradtui.tui.tree.tree_columns import SPARK_WIDTH, columns_for
from gradtui.tui.tree.tree_rows import TreeRows
from gradtui.tui.tree.tree_totals import TreeTotals

MODEL = coop_model()
ROOT, BN = 0, row_of(MODEL, "image_encoder.bn1")
BUFFERS = (
    BufferInfo("token_prefix", (4, 256), "float32", 1024, 4096, ROOT, persistent=False),
    BufferInfo("image_encoder.bn1.running_mean", (32,), "float32", 32, 128, BN, persistent=True),
    BufferInfo("image_encoder.bn1.running_var", (32,), "float32", 32, 128, BN, persistent=True),
)
PREFIX, MEAN, VAR = (~(len(MODEL.parameters) + index) for index in range(3))


@pytest.fixture
def state() -> RunState:
    state = RunState()
    for event in [*coop_run(3)]:
        apply(state, replace(event, buffers=BUFFERS) if event == MODEL else event)
    return state


def below(rows: TreeRows, module: int) -> list[str]:
    return [rows.path(row) for row in rows.rows if rows.parent(row) == module and row < 0]


def test_they_stand_behind_the_parameters_of_their_module(state: RunState) -> None:
    rows = TreeRows(state.tree, room=10_000)
    assert below(rows, ROOT) == ["ctx", "logit_scale", "token_prefix"]
    norm = [f"image_encoder.bn1.{name}" for name in ("weight", "bias", "running_mean", "running_var")]
    assert below(rows, BN) == norm
    assert len(rows) == len(MODEL.modules) + len(MODEL.parameters) + len(BUFFERS)
    assert rows.depth(MEAN) == rows.depth(BN) + 1
    rows.set_folded(BN, folded=True)
    assert below(rows, BN) == []
    rows.set_folded(BN, folded=False)
    assert below(rows, BN) == norm


@pytest.mark.parametrize("fold", [False, True])
def test_they_are_found_by_the_filter(state: RunState, fold: bool) -> None:
    rows = TreeRows(state.tree, room=10_000)
    rows.set_filter("running_")
    if fold:
        for folded in (True, False):
            rows.set_folded(BN, folded)
    assert [rows.path(row) for row in rows.rows if row < 0] == [BUFFERS[1].path, BUFFERS[2].path]
    assert rows.matches == 2
    assert rows.rows[0] == ROOT


def test_row_names_buffer_and_size(state: RunState) -> None:
    columns, totals = columns_for(130), TreeTotals(state.tree, SPARK_WIDTH)
    totals.update(state)
    cells = TreeCells(state.tree, TreeRows(state.tree, room=10_000), totals, columns)
    text = line_text(cells.line(PREFIX))
    assert text.split()[:2] == ["token_prefix", "buffer"]
    assert "4×256" in text
    assert "4.00 KiB" in text
    assert len(text) == columns.width


def test_why_says_what_it_is(state: RunState) -> None:
    words = [" ".join(text for text, _ in fact.spans) for fact in explain(state, PREFIX)]
    assert words[0] == "buffer"
    assert any("not persistent" in text for text in words)
    assert any("It is persistent" in " ".join(t for t, _ in fact.spans) for fact in explain(state, VAR))


def test_it_is_never_toggled(state: RunState) -> None:
    for name in ("toggle_trainable", "freeze_dropping", "freeze_offloading"):
        answer = command_for(name, state, PREFIX)
        assert isinstance(answer, Refusal)
        assert "token_prefix is a buffer" in answer.reason
    answer = command_for("toggle_checkpointing", state, MEAN)
    assert isinstance(answer, Refusal)
    assert "running_mean is a buffer" in answer.reason
    assert follow_gradient(state, MEAN) is None


def test_rows_of_parameters_and_modules_are_no_buffers(state: RunState) -> None:
    assert buffer_at(state.tree, ROOT) is buffer_at(state.tree, ~0) is None
    assert buffer_at(state.tree, ~(len(MODEL.parameters) - 1)) is None
    assert (row_path(state.tree, BN), row_path(state.tree, ~0)) == ("image_encoder.bn1", "ctx")
    assert row_path(state.tree, VAR) == BUFFERS[2].path
