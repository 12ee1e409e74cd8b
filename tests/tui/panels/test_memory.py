from __future__ import annotations

import pytest
from fakes import MIB, coop_run, held, started
from hypothesis import given
from hypothesis import strategies as st

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import MEMORY_CATEGORIES, MemoryBytes, Phase
from gradtui.state.reducer import apply
from gradtui.state.run_state import RunState
from gradtui.tui.lines import Line, line_width
from gradtui.tui.panels.memory import memory_request, memory_title, memory_view

SIZES = [(36, 20), (43, 11), (61, 18), (70, 8), (70, 40), (20, 6)]


def state_after(*events: ev.Event) -> RunState:
    state = RunState()
    for event in events:
        apply(state, event)
    return state


RUNNING = state_after(*coop_run(40))


def text(lines: tuple[Line, ...]) -> str:
    return "\n".join("".join(part for part, _ in line) for line in lines)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_it_keeps_to_its_place(width: int, height: int) -> None:
    view = memory_view(RUNNING, width, height)
    assert len(view.lines) + view.curve_rows <= height
    assert all(line_width(line) <= width for line in view.lines)


@pytest.mark.parametrize(("width", "height"), [(36, 20), (43, 12), (61, 18)])
def test_every_phase_has_its_total_and_its_peak(width: int, height: int) -> None:
    shown = text(memory_view(RUNNING, width, height).lines)
    for phase in (Phase.LOAD, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER):
        last = RUNNING.phases[phase].last
        assert last is not None
        assert last.held.total is not None
        assert last.peak is not None
        row = next(line for line in shown.splitlines() if line.startswith(phase.value))
        assert f"{last.held.total / MIB:.1f} MiB" in row
        assert f"{last.peak / MIB:.1f} MiB" in row
        assert ("≥" in row) is not last.peak_exact


def test_the_four_phases_of_a_training_step_come_first_and_others_when_seen() -> None:
    rows = [line.split()[0] for line in text(memory_view(RUNNING, 61, 8).lines).splitlines()[:5]]
    assert rows == ["load", "forward", "backward", "optimizer", "zero_grad"]
    assert "eval" not in rows


def test_a_phase_that_was_not_seen_is_a_dash() -> None:
    state = state_after(ev.LedgerTaken(1.0, 0, Phase.LOAD, held(MIB, 0, 0, 0), None, True, True))
    row = text(memory_view(state, 61, 18).lines).splitlines()[1]
    assert row.split() == ["forward", "–"]


def test_every_category_has_the_same_role_in_bars_and_legend() -> None:
    full = ev.LedgerTaken(1.0, 1, Phase.FORWARD, MemoryBytes(*[10 * MIB] * 6, 60 * MIB), None, True, True)
    view = memory_view(state_after(full), 70, 20)
    bar_row = next(line for line in view.lines if line[0][0].startswith("forward"))
    bar = [role for part, role in bar_row if role in MEMORY_CATEGORIES]
    legend = [role for line in view.lines[5:] for _, role in line if role in MEMORY_CATEGORIES]
    assert bar == list(MEMORY_CATEGORIES)
    assert set(legend) == set(MEMORY_CATEGORIES)


def test_the_legend_is_of_the_fullest_main_phase_so_that_its_numbers_do_not_alternate() -> None:
    later = ev.LedgerTaken(99.0, 41, Phase.ZERO_GRAD, held(MIB, 0, 0, 0), None, True, True)
    for state in (RUNNING, state_after(*coop_run(40), later)):
        assert "at the end of forward" in text(memory_view(state, 61, 18).lines)


def test_without_colour_categories_have_patterns_of_their_own() -> None:
    full = ev.LedgerTaken(1.0, 1, Phase.FORWARD, MemoryBytes(*[10 * MIB] * 6, 60 * MIB), None, True, True)
    view = memory_view(state_after(full), 70, 20, colour=False)
    row = next(line for line in view.lines if line[0][0].startswith("forward"))
    glyphs = [part[0] for part, role in row if role in MEMORY_CATEGORIES]
    assert len(set(glyphs)) == len(MEMORY_CATEGORIES)


def test_the_source_is_named_and_estimates_are_called_so() -> None:
    assert memory_title(RUNNING) == "cpu ledger, exact"
    guess = ev.LedgerTaken(99.0, 41, Phase.FORWARD, held(MIB, 0, 0, 0), None, True, False)
    assert "estimated" in memory_title(state_after(started(), guess))


def test_the_highest_peak_names_its_phase() -> None:
    highest = max(RUNNING.phases.items(), key=lambda entry: entry[1].peak or 0)
    assert f"{(highest[1].peak or 0) / MIB:.1f} MiB in {highest[0]}" in text(memory_view(RUNNING, 61, 18).lines)


def test_the_machine_has_a_line() -> None:
    gib = 1024 * MIB
    sample = ev.DeviceSampled(1.0, 1, "nvml", 2 * gib, 24 * gib, 9 * gib, 14 * gib, 8 * gib, 7 * gib, 8 * gib, 0.83)
    shown = text(memory_view(state_after(*coop_run(3), sample), 120, 18).lines)
    for part in ("host 2.00 GiB of 24.0 GiB", "device 9.00 GiB of 14.0 GiB", "this process 8.00 GiB", "busy 83%"):
        assert part in shown


def test_empty_panels_say_what_will_fill_them() -> None:
    assert "Waiting" in text(memory_view(RunState(), 40, 10).lines)
    assert "ended" in text(memory_view(state_after(ev.RunEnded(1.0, 0, 0, None)), 40, 10).lines)


def test_the_curve_gets_what_is_left_if_that_is_enough() -> None:
    assert memory_view(RUNNING, 61, 11).curve_rows == 0
    view = memory_view(RUNNING, 61, 40)
    assert view.curve_rows == 40 - len(view.lines)
    request = memory_request(RUNNING, 61, view.curve_rows)
    assert request is not None
    assert request.unit == "bytes"
    totals = [RUNNING.phases[phase].totals for phase in (Phase.FORWARD, Phase.OPTIMIZER)]
    assert [len(series.xs) for series in request.series] == [len(total) for total in totals]


sizes = st.integers(min_value=-(2**50), max_value=2**70)


@given(
    st.builds(MemoryBytes, sizes, sizes, sizes, sizes, st.none() | sizes, st.none() | sizes, st.none() | sizes),
    st.none() | sizes, st.booleans(), st.sampled_from(Phase), st.sampled_from(SIZES),
)  # fmt: skip
def test_any_ledger_can_be_shown(
    known: MemoryBytes, peak: int | None, exact: bool, phase: Phase, size: tuple[int, int]
) -> None:
    state = state_after(ev.LedgerTaken(1.0, 1, phase, known, peak, exact, exact))
    assert memory_view(state, *size).lines
    assert memory_view(state, *size, colour=False).lines
