"""What the marks of the curves stand for."""

from __future__ import annotations

import pytest
from helpers import step_memory
from helpers.fakes import MIB
from helpers.lines import line_text

from gradtui.protocol import events as ev
from gradtui.protocol.commands import Intervention, SetGroup, SetTrainable, Undo
from gradtui.protocol.vocabulary import Phase
from gradtui.run.reducer import apply
from gradtui.run.state.findings import Finding, Level, Status
from gradtui.run.state.over_steps.markers import Marker, MarkerKind, markers
from gradtui.run.state.parts.rate_jumps import RateJump
from gradtui.run.state.run_state import ModelChange, RunState
from gradtui.tui.explanations.mark_lines import mark_rows, mark_words
from gradtui.tui.rendering import detail_lines


def words(state: RunState, marks: list[Marker]) -> str:
    return "\n".join(line_text(line) for line in detail_lines(mark_rows(state, marks), 90))


def applied(step: int, command: Intervention, text: str, undone: int | None = None) -> ev.CommandApplied:
    return ev.CommandApplied(float(step), step, command, text, (), (), undone=undone)


def test_change_has_its_answer_and_undo_too() -> None:
    state = RunState()
    apply(state, applied(20, SetTrainable(1, "ctx", False), "froze ctx: 1 tensor, gradients -21 KiB"))
    apply(state, applied(60, Undo(2), "unfroze ctx: 1 tensor", undone=1))
    freeze, undo = markers(state)
    assert line_text(mark_words([freeze, undo])) == "■ freeze ctx  ► unfreeze ctx"
    told = words(state, [freeze])
    assert "after step 20" in told
    assert "froze ctx: 1 tensor, gradients -21 KiB" in told
    assert "undone" in told
    assert "undo: unfroze ctx" in words(state, [undo])


def test_a_command_with_two_marks_is_told_once() -> None:
    state = RunState()
    apply(state, applied(9, SetGroup(1, 0, 0, 1e-3, 0.1), "set lr to 0.001"))
    mark = markers(state)[0]
    assert words(state, [mark, mark]).count("set lr to 0.001") == 1


def test_a_finding_has_its_page() -> None:
    finding = Finding(
        "GT204", Level.WARNING, Status.CONFIRMED, "the loss is not divided", "because", "divide it", 12, 20
    )
    told = words(RunState(), [Marker(12, MarkerKind.FINDING, "GT204", finding)])
    for part in ("at step 12", "GT204", "the loss is not divided", "because", "divide it"):
        assert part in told


def test_a_spike_has_its_figures() -> None:
    run = step_memory.state(60, {20: 300 * MIB})
    told = " ".join(words(run, [Marker(20, MarkerKind.SPIKE, "+300M", run.step_memory.spikes[0])]).split())
    assert f"memory spike in {Phase.FORWARD.value}: ≥" in told


@pytest.mark.parametrize(
    ("mark", "part"),
    [
        (Marker(30, MarkerKind.LEARNING_RATE, "0.1 → 0.01", RateJump(31, 0, 1, 0.1, 0.01)), "0.1 → 0.01 of group 1"),
        (Marker(40, MarkerKind.MODEL, "Net\x1b[31m", ModelChange(40, "Net", True)), "Net"),
        (Marker(50, MarkerKind.CHANGE, ""), "after step 50"),
    ],
)
def test_other_marks_have_their_words_clean(mark: Marker, part: str) -> None:
    told = words(RunState(), [mark])
    assert part in told
    assert "\x1b" not in told
