"""The closing lines: at most ten with labels, and everything that went wrong."""

from __future__ import annotations

import pytest
from fakes import coop_model, coop_run, coop_states, started

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.vocabulary import Phase
from gradtui.reducer import apply
from gradtui.state.findings import Finding, Level, Status
from gradtui.state.run_state import RunState
from gradtui.text import closing_lines, end_rows


def after(*events: ev.Event) -> RunState:
    state = RunState()
    for event in events:
        apply(state, event)
    return state


def finding(number: int, level: Level = Level.NOTE) -> Finding:
    return Finding(f"GT{number}", level, Status.CONFIRMED, f"wrong {number}", "why", "mend it", 1, 1)


def test_labels_stand_in_a_column() -> None:
    lines = closing_lines(after(*coop_run(5), ev.RunEnded(9.0, 5, 0, None)))
    assert 5 < len(lines) <= 10
    assert lines[0] == "steps     5 steps, 5 micro-steps in 9.0 s"
    assert all(line[9] == " " and line[10] != " " for line in lines)
    assert [line.split()[0] for line in lines][1:3] == ["trained", "tensors"]
    letters, _ = coop_states(coop_model())
    assert lines[2] == f"tensors   trains {letters.count('T')}, off {letters.count('C')}, passes {letters.count('F')}"


def test_a_failure_begins_with_the_error() -> None:
    rows = end_rows(after(*coop_run(5), ev.RunEnded(9.0, 5, 1, "Traceback\n  x\nValueError: boom\n\n")))
    assert (rows[0].label, rows[0].text, rows[0].level) == ("error", "ValueError: boom", Level.ERROR)
    assert rows[1].text.endswith("exit code 1")


@pytest.mark.parametrize("count", [1, 5, 30])
def test_no_finding_is_left_out(count: int) -> None:
    state = after(*coop_run(5), ev.RunEnded(9.0, 5, 0, None))
    state.findings = [finding(100 + number) for number in range(count)]
    lines = closing_lines(state)
    for number in range(count):
        assert f"finding   note GT{100 + number}: wrong {100 + number}; mend it" in lines
    assert len(lines) <= max(10, count + 4)
    assert any(line.startswith("memory ") for line in lines)
    assert any(line.startswith("trained ") for line in lines)


def test_a_freeze_that_moved_is_said() -> None:
    froze = ev.CommandApplied(2.0, 3, SetTrainable(1, "ctx", False), "froze ctx", (0,))
    moved = ev.FreezeVerified(3.0, 4, 1, 1, 10, ("ctx",))
    rows = end_rows(after(*coop_run(5), froze, moved, ev.RunEnded(9.0, 5, 0, None)))
    assert [row.level for row in rows if row.label == "moved"] == [Level.ERROR]
    assert rows[-1].label == "changed"
    assert rows[-1].text == "1 change, the last at step 3: froze ctx"


def test_a_run_that_trained_nothing_says_why() -> None:
    lines = closing_lines(after(started(), ev.RunEnded(1.0, 0, 0, None, 34.56)))
    assert lines[0].startswith("trained   the script ran to its end without training anything in this process")
    assert lines[1].startswith(" " * 10 + "its child processes used 34.6 s of CPU time")
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("exempt_steps", "exempt_seconds", "text"),
    [
        (0, 0.0, "13.0 % (2600 µs a step)"),
        # 0.01 s of measuring in the 1.75 s that are left without the 0.25 s.
        (15, 0.25, "13.0 % (2600 µs a step); the budget does not apply to 15 of 100 steps, the others take 0.6 %"),
        (100, 0.26, "13.0 % (2600 µs a step); the budget does not apply to 100 of 100 steps"),
    ],
)
def test_a_high_overhead_names_the_steps_that_are_exempt(exempt_steps: int, exempt_seconds: float, text: str) -> None:
    first = ev.Progress(1.0, 1, 1, 1, 0, (1,), (), 0.5, 1, 1)
    time = (ev.PhaseTime(Phase.FORWARD, 2.0, 100),)
    rest = ev.Progress(
        9.0, 101, 100, 100, 0, (100,), time, 0.26, 1, 1, exempt_steps=exempt_steps, exempt_seconds=exempt_seconds
    )
    assert [row.text for row in end_rows(after(started(), first, rest)) if row.label == "overhead"] == [text]
