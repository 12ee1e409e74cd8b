from __future__ import annotations

import pytest
from helpers.lines import line_text

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetCheckpointing, SetTrainable, TrainOnly, Undo
from gradtui.protocol.effects import Effect, StepMemory
from gradtui.run.reducer import apply
from gradtui.run.state.parts.prediction import Prediction
from gradtui.run.state.run_state import RunState
from gradtui.tui.panels.changes import EMPTY, changes_lines
from gradtui.tui.rendering import Line, line_width

MIB = 2**20


def text_of(lines: list[Line]) -> list[str]:
    return [line_text(line).rstrip() for line in lines]


def changed_run() -> RunState:
    state = RunState()
    effect = Effect(
        StepMemory(280, None, 90 * MIB, None), StepMemory(287, None, 99 * MIB, None), joined=(("Adam", 12),)
    )
    for event in (
        ev.CommandApplied(1.0, 85, SetTrainable(1, "blocks.7", False), "froze blocks.7: 12 tensors", ()),
        ev.FreezeVerified(2.0, 95, 1, 12, 10, ()),
        ev.CommandApplied(3.0, 1285, SetTrainable(2, "blocks.7", True), "unfroze blocks.7: 12 tensors", ()),
        ev.ReceiptTaken(4.0, 1288, 2, "", True, effect),
    ):
        apply(state, event)
    return state


SIZES = [(50, 3), (68, 6), (30, 2), (12, 4)]


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_lines_have_width_and_number(width: int, height: int) -> None:
    for state in (RunState(), changed_run()):
        lines = changes_lines(state, width, height)
        assert 1 <= len(lines) <= height
        assert {line_width(line) for line in lines} == {width}


def test_without_change_it_says_what_will_stand_here() -> None:
    assert " ".join(text_of(changes_lines(RunState(), 50, 3))) == EMPTY


def test_newest_is_at_bottom_and_columns_are_aligned() -> None:
    assert text_of(changes_lines(changed_run(), 68, 6)) == [
        "□    85 froze blocks.7    unchanged bit for bit for 10 steps",
        "■ 1,285 unfroze blocks.7  90.0 → 99.0 MiB, 12 tensors joined Adam",
    ]


def test_wide_results_are_wrapped_or_cut() -> None:
    assert text_of(changes_lines(changed_run(), 50, 3)) == [
        "□    85 froze blocks.7    unchanged bit for bit f…",
        "■ 1,285 unfroze blocks.7  90.0 → 99.0 MiB, 12",
        "                          tensors joined Adam",
    ]
    assert text_of(changes_lines(changed_run(), 50, 1)) == ["■ 1,285 unfroze blocks.7  90.0 → 99.0 MiB, 12 ten…"]


def test_forecast_leaves_largest_change_if_narrow() -> None:
    state = changed_run()
    before, after = StepMemory(280, None, 90 * MIB, 20 * MIB), StepMemory(287, None, 99 * MIB, 32 * MIB)
    apply(state, ev.ReceiptTaken(4.0, 1288, 2, "", True, Effect(before, after)))
    state.forecast_of[2] = Prediction(11 * MIB, 9 * MIB, 0, None, True)
    assert text_of(changes_lines(state, 69, 3))[1:] == [
        "■ 1,285 unfroze blocks.7  90.0 → 99.0 MiB (forecast 99.0),",
        "                          activations 20.0 → 32.0 MiB (forecast 31.0)",
    ]
    assert text_of(changes_lines(state, 72, 1)) == [
        "■ 1,285 unfroze blocks.7  activations 20.0 → 32.0 MiB (forecast 31.0)"
    ]


def test_the_end_of_a_long_path_stays() -> None:
    state = RunState()
    path = "text_encoder.transformer.blocks.7"
    apply(state, ev.CommandApplied(1.0, 5, SetTrainable(1, path, False), "", ()))
    (line,) = text_of(changes_lines(state, 50, 3))
    # Half of 50 cells are 25, of which glyph, step and blanks take 4, and "froze " takes 6.
    assert line == "□ 5 froze …ormer.blocks.7"


def test_each_status_has_its_glyph() -> None:
    state = changed_run()
    apply(state, ev.CommandApplied(5.0, 1300, Undo(3), "froze blocks.7: 12 tensors", (), undone=2))
    apply(state, ev.CommandRejected(6.0, 1301, TrainOnly(4, "x"), "no such parameter"))
    apply(state, ev.CommandApplied(7.0, 1302, SetCheckpointing(5, "blocks.1", True), "", ()))
    state.note_submitted(SetTrainable(6, "head", False))
    lines = changes_lines(state, 68, 6)
    assert [line[0][0].strip() for line in lines if line[0][0].strip()] == ["□", "■", "←", "×", "◇", "○"]
    assert text_of(lines)[1].endswith("  undone, 90.0 → 99.0 MiB, 12 tensors…")
