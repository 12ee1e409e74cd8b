"""The closing lines: at most ten with labels, and everything that went wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from helpers import step_memory
from helpers.fakes import MIB, coop_model, coop_run, coop_states, row_of, started
from helpers.lines import line_text
from helpers.states import state_after

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetCheckpointing, SetTrainable
from gradtui.protocol.script_lines import ScriptLine, Uncaught
from gradtui.protocol.vocabulary import Phase
from gradtui.records.export.memory import step_memory as step_memory_of
from gradtui.run.reducer import apply
from gradtui.run.state.findings import Finding, Level, Status
from gradtui.run.state.memory.run_memory import run_peak
from gradtui.run.state.run_state import RunState
from gradtui.run.text.effects import counted_changes, trial_text
from gradtui.run.text.ending import closing_lines, end_rows
from gradtui.run.text.memory import spikes_text
from gradtui.run.text.units import size_text
from gradtui.tui.panels.header import HeaderState, header_line
from gradtui.tui.plots.memory import memory_plot
from gradtui.tui.plots.options import PlotOptions


def finding(number: int, level: Level = Level.NOTE) -> Finding:
    return Finding(f"GT{number}", level, Status.CONFIRMED, f"wrong {number}", "why", "mend it", 1, 1)


def test_labels_stand_in_a_column() -> None:
    lines = closing_lines(end_rows(state_after(*coop_run(5), ev.RunEnded(9.0, 5, 0, None))))
    assert 5 < len(lines) <= 10
    assert lines[0] == "steps     5 steps, 5 micro-steps in 9.0 s"
    assert all(line[9] == " " and line[10] != " " for line in lines)
    assert [line.split()[0] for line in lines][1:3] == ["trained", "tensors"]
    letters, _ = coop_states(coop_model())
    assert lines[2] == f"tensors   trains {letters.count('T')}, off {letters.count('C')}, passes {letters.count('F')}"


def test_steps_of_other_threads_are_not_counted() -> None:
    trouble = ev.ProbeFailed(8.0, 5, "sampled step", ev.SEVERAL_THREADS, False)
    lines = closing_lines(end_rows(state_after(*coop_run(5), trouble, ev.RunEnded(9.0, 5, 0, None))))
    assert lines[0].startswith(
        "steps     5 steps of one of the threads that train (the others are not counted), 5 micro"
    )


def test_a_failure_begins_with_the_error() -> None:
    rows = end_rows(state_after(*coop_run(5), ev.RunEnded(9.0, 5, 1, "Traceback\n  x\nValueError: boom\n\n")))
    assert (rows[0].label, rows[0].text, rows[0].level) == ("error", "ValueError: boom", Level.ERROR)
    assert rows[1].text.endswith("exit code 1")


def test_failure_shows_line_text_and_cause() -> None:
    line = ScriptLine("train.py", 34, "state = torch.load(path)", "main")
    text = ("Weights only load failed.", *(f"({number}) do this" for number in range(1, 9)))
    raised = Uncaught("pickle.UnpicklingError", text, 3, line, "KeyError: 'a'")
    rows = end_rows(
        state_after(*coop_run(5), ev.RunEnded(9.0, 5, 1, "Traceback\n...\nCheck the documentation", uncaught=raised))
    )
    assert [(row.label, row.text) for row in rows[:8]] == [
        ("error", "pickle.UnpicklingError: Weights only load failed."),
        ("at", "train.py:34 in main: state = torch.load(path)"),
        ("message", "(1) do this"),
        ("", "(2) do this"),
        ("", "(3) do this"),
        ("", "(4) do this"),
        ("", "… and 7 more lines"),
        ("cause", "KeyError: 'a'"),
    ]


def test_exception_without_text_has_its_class_alone() -> None:
    rows = end_rows(state_after(*coop_run(5), ev.RunEnded(9.0, 5, 1, "Traceback", uncaught=Uncaught("AssertionError"))))
    assert [(row.label, row.text) for row in rows[:2]] == [
        ("error", "AssertionError"),
        ("steps", "5 steps, 5 micro-steps in 9.0 s, exit code 1"),
    ]


@pytest.mark.parametrize("count", [1, 5, 30])
def test_no_finding_is_left_out(count: int) -> None:
    state = state_after(*coop_run(5), ev.RunEnded(9.0, 5, 0, None))
    state.findings = [finding(100 + number) for number in range(count)]
    lines = closing_lines(end_rows(state))
    for number in range(count):
        assert f"finding   note GT{100 + number}: wrong {100 + number}; mend it" in lines
    assert len(lines) <= max(10, count + 4)
    assert any(line.startswith("memory ") for line in lines)
    assert any(line.startswith("trained ") for line in lines)


def test_a_freeze_that_moved_is_said() -> None:
    froze = ev.CommandApplied(2.0, 3, SetTrainable(1, "ctx", False), "froze ctx", (0,))
    moved = ev.FreezeVerified(3.0, 4, 1, 1, 10, ("ctx",))
    rows = end_rows(state_after(*coop_run(5), froze, moved, ev.RunEnded(9.0, 5, 0, None)))
    assert [row.level for row in rows if row.label == "moved"] == [Level.ERROR]
    assert rows[-1].label == "changed"
    assert rows[-1].text == "1 change, the last at step 3: froze ctx"


def test_a_run_that_trained_nothing_says_why() -> None:
    lines = closing_lines(end_rows(state_after(started(), ev.RunEnded(1.0, 0, 0, None, 34.56))))
    assert lines[0].startswith("trained   the script ran to its end without training anything in this process")
    assert lines[1].startswith(" " * 10 + "its child processes used 34.6 s of CPU time")
    assert len(lines) == 2


def test_continuing_run_is_not_said_untrained() -> None:
    assert closing_lines(end_rows(state_after(started()))) == ["trained   no step has been made so far"]


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({}, "13.0 % of the run (2.60 ms a step): hooks and readings of every step 13.0 %; set-up 500 ms, once"),
        (
            {"exempt_steps": 15, "exempt_seconds": 0.25},
            "13.0 % of the run (2.60 ms a step): samples without a budget (15 of 100 steps) 12.5 %, "
            "hooks and readings of every step 0.5 %; set-up 500 ms, once",
        ),
        (
            {"exempt_steps": 101, "exempt_seconds": 0.3},
            "13.0 % of the run (2.60 ms a step): samples without a budget (100 of 100 steps) 13.0 %, "
            "hooks and readings of every step 0.0 %; set-up 500 ms, once",
        ),
        (
            {"exempt_steps": 15, "exempt_seconds": 0.2, "paid_steps": 2, "paid_seconds": 0.02, "listing_seconds": 0.1},
            "8.4 % of the run (1.60 ms a step): samples within the budget (1 %) 1.1 %, "
            "samples without a budget (15 of 100 steps) 7.4 %, hooks and readings of every step 0.0 %; set-up 600 ms, once",
        ),
    ],
    ids=["no samples", "first steps", "all steps", "all parts"],
)
def test_overhead_says_which_budget_governs(parts: dict[str, Any], text: str) -> None:
    start = replace(started(), budget=0.01)
    first = ev.Progress(1.0, 1, 1, 1, 0, (1,), (), 0.5, 1, 1)
    time = (ev.PhaseTime(Phase.FORWARD, 2.0, 100),)
    rest = replace(ev.Progress(9.0, 101, 100, 100, 0, (100,), time, 0.26, 1, 1), **parts)
    assert [row.text for row in end_rows(state_after(start, first, rest)) if row.label == "overhead"] == [text]


def memory_row(state: RunState) -> str:
    (row,) = [row for row in end_rows(state) if row.label == "memory"]
    return row.text


def test_peak_has_step_of_header() -> None:
    run = step_memory.state(60)
    highest = max(step_memory.totals(step).peak or 0 for step in range(1, 61))
    first = next(step for step in range(1, 61) if step_memory.totals(step).peak == highest)
    size = (highest - step_memory.BEFORE) / MIB
    assert (
        memory_row(run)
        == f"peak ≥ {size:.1f} MiB at step {first} in forward, besides 1.0 MiB held since before training"
    )
    header = line_text(header_line(run, HeaderState(), 200))
    assert f"peak ≥{size:.0f} MiB" in header
    assert "≥" not in memory_row(step_memory.state(60, exact=True))


def profile(step: int, peak: int) -> ev.StepMemoryProfiled:
    highest = (None,) * len(coop_model().modules)
    return ev.StepMemoryProfiled(
        9.0, step, (1, peak), 2, ((Phase.FORWARD, 0),), peak, Phase.BACKWARD, 1, (), highest, True
    )


def test_peak_of_profiled_step_is_of_profile() -> None:
    run = step_memory.state(60)
    highest = run_peak(run)
    # The total that was read when a phase of it ended is a little higher: it has the log of the profile.
    apply(run, profile(highest.step, highest.whole - MIB // 2))
    size = (highest.bytes - MIB // 2) / MIB
    module = coop_model().modules[1].path
    assert (
        memory_row(run) == f"peak ≥ {size:.1f} MiB at step {highest.step} in backward at {module}, "
        "besides 1.0 MiB held since before training"
    )


def test_far_higher_total_stays_beside_profile() -> None:
    run = step_memory.state(60)
    highest = run_peak(run)
    apply(run, profile(highest.step, 40 * MIB))
    assert memory_row(run).startswith(f"peak ≥ {size_text(highest.bytes)} at step {highest.step} in forward")
    assert "; within its tensor operations: 39.0 MiB in backward at " in memory_row(run)
    apply(run, profile(60, 40 * MIB))
    assert "; within step 60: 39.0 MiB in backward at " in memory_row(run)


@pytest.mark.parametrize(
    ("spikes", "words"),
    [
        ({20: 64}, "; 1 spike"),
        ({20: 300, 40: 64}, "; 2 spikes"),
        ({20: 64, 40: 300}, "; 2 spikes"),
    ],
)
def test_spikes_are_counted(spikes: dict[int, int], words: str) -> None:
    run = step_memory.state(60, {step: more * MIB for step, more in spikes.items()})
    highest = max(spikes, key=lambda step: spikes[step])
    assert f" at step {highest} in forward" in memory_row(run)
    assert memory_row(run).endswith(words)


def test_unread_steps_may_hide_spikes() -> None:
    run = step_memory.state(60, {20: 64 * MIB, 40: 300 * MIB})
    for step in (61, 64):
        apply(run, ev.StepMemoryMeasured(9.0, step, (step_memory.totals(step),)))
    assert memory_row(run).endswith("; ≥2 spikes")
    below = memory_plot(run, PlotOptions(), 110, 30).below
    assert line_text(below[0]).startswith("≥2 spikes, the newest at step 40")
    assert not step_memory_of(run).spike_count_exact


def test_largest_spike_is_named_unless_peak() -> None:
    run = step_memory.state(60, {20: 64 * MIB, 40: 80 * MIB})
    apply(run, ev.StepMemoryMeasured(9.0, 61, (step_memory.totals(61, 400 * MIB),)))
    size = ((step_memory.totals(40, 80 * MIB).peak or 0) - step_memory.BEFORE) / MIB
    assert memory_row(run).endswith(f"; 2 spikes, the largest {size:.1f} MiB at step 40 in forward")


def test_largest_spike_is_of_those_kept() -> None:
    """After the first ones only some are: a larger one may be among the others."""
    run = step_memory.state(60, {20: 64 * MIB, 40: 80 * MIB})
    apply(run, ev.StepMemoryMeasured(9.0, 61, (step_memory.totals(61, 400 * MIB),)))
    apply(run, step_memory.spike(50, 70 * MIB, number=200))
    assert "; 200 spikes, the largest of 3 that are kept " in memory_row(run)
    largest = step_memory.totals(40, 80 * MIB).peak or 0
    assert spikes_text(run) == (
        "200 memory spikes (far above the peaks of the steps around), the largest of 3 that are kept at step 40 in forward: "
        f"≥ {size_text(largest)}, usually {size_text(step_memory.USUAL)}"
    )


def test_second_step_of_spike_may_be_peak() -> None:
    run = step_memory.state(60, {20: 64 * MIB, 21: 90 * MIB})
    run.step_memory.spikes = [step_memory.spike(20, 90 * MIB, steps=2)]
    run.step_memory.spike_count = 1
    assert " at step 21 in forward" in memory_row(run)
    assert memory_row(run).endswith("; 1 spike")


BLOCK = "text_encoder.blocks.0"
BLOCK_INDEX = row_of(coop_model(), BLOCK)
_BEGUN = ev.CommandApplied(2.0, 41, SetCheckpointing(1, BLOCK, True), trial_text(BLOCK, 1), ())
_ENDED = ev.RunEnded(9.0, 60, 0, None)


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([_BEGUN, ev.CheckpointingChanged(2.0, 42, (BLOCK_INDEX,)), _ENDED], f"checkpoints {BLOCK}"),
        (
            [_BEGUN, ev.ReceiptTaken(2.0, 42, 1, f"{BLOCK} is not checkpointed: no reason", False), _ENDED],
            f"{BLOCK} is not checkpointed: no reason",
        ),
        (
            [_BEGUN, _ENDED],
            f"checkpoints {BLOCK}, unless its trial failed: the run ended before that was known",
        ),
        ([_BEGUN], f"checkpoints {BLOCK}, if this step's trial agrees"),
    ],
)
def test_outcome_of_trial_is_said_at_end(events: list[ev.Event], said: str) -> None:
    state = state_after(*coop_run(40), *events)
    (row,) = [each.text for each in end_rows(state) if each.label == "changed"]
    assert row == f"1 change, the last at step 41: {said}"
    assert [each.text for each in counted_changes(state)] == [said]
