"""Which rows findings concern, and their mark."""

from __future__ import annotations

from dataclasses import replace

from helpers.fakes import coop_model, coop_run, finding, row_of
from helpers.lines import line_text
from helpers.states import state_after

from gradtui.run.state.findings import Level, Status
from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree.rows import findings_at
from gradtui.tui.rendering import line_width
from gradtui.tui.tree.finding_rows import FindingRows, first_row
from gradtui.tui.tree.tree_cells import PendingMarks, TreeCells
from gradtui.tui.tree.tree_columns import SPARK_WIDTH, columns_for
from gradtui.tui.tree.tree_rows import TreeRows
from gradtui.tui.tree.tree_totals import TreeTotals

MODEL = coop_model()
CONV, BN = "image_encoder.conv1.weight", "image_encoder.bn1"
ERROR = finding("GT106", paths=(CONV,))
NOTE = finding("GT105", Level.NOTE, paths=(BN, CONV))


def known() -> RunState:
    return state_after(*coop_run(5))


def row_at(path: str) -> int:
    return row_of(MODEL, path)


def levels(state: RunState) -> FindingRows:
    rows = FindingRows(state.tree)
    rows.update(state.findings)
    return rows


def test_gravest_level_marks_row_and_parents() -> None:
    state = known()
    state.findings = [NOTE, ERROR]
    rows = levels(state)
    assert rows.levels == {row_at(CONV): Level.ERROR, row_at(BN): Level.NOTE}
    assert rows.levels_below == {
        row_at("image_encoder.conv1"): Level.ERROR, row_at("image_encoder"): Level.ERROR, row_at(""): Level.ERROR
    }  # fmt: skip


def test_only_confirmed_and_open_findings_mark_rows() -> None:
    state = known()
    state.findings = [replace(ERROR, status=Status.SUSPECTED), replace(NOTE, cleared_step=3)]
    rows = levels(state)
    assert not rows.levels
    assert not rows.levels_below
    assert findings_at(state, row_at(CONV)) == []


def test_paths_that_the_tree_lacks_are_skipped() -> None:
    state = known()
    state.findings = [finding(paths=("gone", CONV)), finding("GT110", paths=("gone",), key="other")]
    assert first_row(state.tree, state.findings[0]) == row_at(CONV)
    assert first_row(state.tree, state.findings[1]) is None
    assert set(levels(state).levels) == {row_at(CONV)}


def test_root_without_path_goes_by_its_name() -> None:
    state = known()
    assert first_row(state.tree, finding(paths=(MODEL.modules[0].name,))) == 0


def test_findings_of_row_and_below() -> None:
    state = known()
    state.findings = [NOTE, ERROR, finding("GT203")]
    assert findings_at(state, row_at(CONV)) == [ERROR, NOTE]
    assert findings_at(state, row_at(BN)) == [NOTE]
    assert findings_at(state, row_at("image_encoder")) == [ERROR, NOTE]
    assert findings_at(state, row_at("text_encoder")) == []


def test_mark_stands_beside_state_and_moves_nothing() -> None:
    state = known()
    totals = TreeTotals(state.tree, SPARK_WIDTH)
    totals.update(state)
    marks = FindingRows(state.tree)
    cells = TreeCells(state.tree, TreeRows(state.tree, room=10_000), totals, columns_for(80), None, marks)
    every = [*range(len(MODEL.modules)), *(~index for index in range(len(MODEL.parameters)))]
    before = {each: cells.line(each) for each in every}
    state.findings = [NOTE, ERROR]
    marks.update(state.findings)
    changed = {each for each in every if cells.line(each) != before[each]}
    assert changed == {row_at(CONV), row_at(BN)}
    for each, role in ((row_at(CONV), "error"), (row_at(BN), "muted")):
        now, then = (line_text(line) for line in (cells.line(each), before[each]))
        assert now == "!" + then[1:]
        assert line_width(cells.line(each)) == 80
        text, shown = cells.line(each)[0]
        assert (text[0], shown) == ("!", role)
    cells.rows.set_folded(row_at("image_encoder.conv1"), True)
    text, shown = cells.line(row_at("image_encoder.conv1"))[0]
    assert (text[0], shown) == ("!", "error"), "it hides the row"
    cells.pending = PendingMarks({~row_at(CONV): True})
    assert cells.line(row_at(CONV))[0][0][0] != "!", "a pending command comes first"
