"""The memory panel by phase."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers import step_memory
from helpers.fakes import MIB, coop_model, coop_run, held, row_of
from helpers.lines import line_text, text
from helpers.states import state_after
from hypothesis import given
from hypothesis import strategies as st

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import MemoryBytes, Phase
from gradtui.run.reducer import apply
from gradtui.run.state.memory.run_memory import above_load, memory_peak, phase_peak, phase_total, run_peak
from gradtui.run.state.run_state import RunState
from gradtui.run.text.memory_parts import BEFORE_TRAINING, MEMORY_PARTS, parts_of_memory
from gradtui.run.text.units import bytes_text
from gradtui.tui.panels.memory_bars import CHOSEN_MARK, MemoryOptions
from gradtui.tui.panels.memory_table import MAIN_PHASES, next_phase, phase_table
from gradtui.tui.rendering.lines import Line, line_width
from gradtui.tui.rendering.palette import STALE

MODEL = coop_model()
SIZES = [(36, 20), (43, 11), (61, 18), (70, 8), (70, 40), (20, 6)]


RUNNING = state_after(*coop_run(40))
EVERY_PHASE = state_after(
    *coop_run(40),
    *(ev.MemoryMeasured(9.0, 40, p, held(26 * MIB, 0, 0, 0), None, True, True) for p in (Phase.DATA, Phase.EVAL)),
)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_it_keeps_to_its_place(width: int, height: int) -> None:
    view = phase_table(RUNNING, width, height)
    assert len(view.lines) <= height
    assert all(line_width(line) <= width for line in view.lines)


def row(lines: tuple[Line, ...], phase: Phase) -> str:
    return next(line for line in text(lines).splitlines() if line[1:].startswith(phase.value))


@pytest.mark.parametrize(("share", "is_told"), [(1.2, True), (1.0, True), (0.99, True), (0.7, False)])
def test_peak_so_far_names_highest_module(share: float, is_told: bool) -> None:
    found = run_peak(RUNNING)
    phase, peak = found.phase, int((found.record.peak or 0) * share)
    block = row_of(MODEL, "text_encoder.blocks.3")
    highest = (None,) * len(MODEL.modules)
    traced = ev.StepMemoryProfiled(9.0, 40, (1, peak), 2, ((phase, 0),), peak, phase, block, (), highest, True)
    state = state_after(*coop_run(40), traced)
    shown = text(phase_table(state, 90, 20).lines)
    known = memory_peak(state)
    assert known.step == (40 if is_told else found.step)
    assert f"peak {'' if is_told else '≥'}{known.bytes / MIB:.1f} MiB at step {known.step}" in shown
    assert ("at text_encoder.blocks.3" in shown) is is_told


@pytest.mark.parametrize(("width", "height"), [(36, 20), (43, 12), (61, 18)])
def test_phases_have_totals_and_telling_peaks(width: int, height: int) -> None:
    for phase in MAIN_PHASES:
        last = RUNNING.phases[phase].last
        assert last.held.total is not None
        assert last.peak is not None
        lines = phase_table(RUNNING, width, height, MemoryOptions(phase)).lines
        assert f"{above_load(RUNNING, last.held.total) / MIB:.1f} MiB" in row(lines, phase)
        heading = next(line for line in text(lines).splitlines() if f"{phase}, step" in line)
        bound = "" if last.peak_exact else "≥"
        assert f"peak {bound}{above_load(RUNNING, last.peak) / MIB:.1f} MiB" in heading
        highest = phase_peak(RUNNING, phase)
        assert highest is not None
        if width > 50:
            assert f"▲{' ' if highest[1] == 'exact' else '≥'}{bytes_text(highest[0])}" in row(lines, phase)


def test_peak_that_reads_like_total_is_not_repeated() -> None:
    same = held(26 * MIB, 0, 0, 0)
    state = state_after(ev.MemoryMeasured(1.0, 1, Phase.FORWARD, same, (same.total or 0) + 1, False, True))
    lines = phase_table(state, 61, 18).lines
    assert "▲" not in row(lines, Phase.FORWARD)
    assert "peak" not in text(lines[5:6])


@pytest.mark.parametrize(("width", "height"), [(36, 20), (41, 10), (50, 13), (61, 18), (72, 30)])
@pytest.mark.parametrize("phase", [Phase.LOAD, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.ZERO_GRAD])
def test_parts_of_phase_are_numbers(width: int, height: int, phase: Phase) -> None:
    lines = phase_table(EVERY_PHASE, width, height, MemoryOptions(phase)).lines
    last = EVERY_PHASE.phases[phase].last
    assert last is not None
    assert row(lines, phase).startswith(CHOSEN_MARK)
    for part in parts_of_memory(last.held, EVERY_PHASE):
        names = (part.name, part.short_name)
        assert any(f"{name} " in text(lines) or name in text(lines) for name in names)
        assert bytes_text(part.size) in text(lines)


def test_numbers_win_where_room_is_short() -> None:
    narrow = text(phase_table(EVERY_PHASE, 41, 10).lines)
    assert bytes_text(26 * MIB) in narrow
    assert " data" not in narrow
    assert "host" not in narrow
    assert " data" in text(phase_table(EVERY_PHASE, 41, 20).lines)


def test_parts_add_up_with_earlier_memory() -> None:
    state = state_after(
        ev.MemoryMeasured(1.0, 0, Phase.LOAD, held(MIB, 0, 0, 0, other=40 * MIB), None, True, True),
        ev.MemoryMeasured(2.0, 1, Phase.FORWARD, held(MIB, 0, 0, 5 * MIB, other=43 * MIB), None, True, True),
    )
    for phase in (Phase.LOAD, Phase.FORWARD):
        last = state.phases[phase].last
        parts = {part.role: part.size for part in parts_of_memory(last.held, state)}
        assert sum(size or 0 for size in parts.values()) == last.held.total
        assert (parts[BEFORE_TRAINING], parts["other"]) == (40 * MIB, (last.held.other or 0) - 40 * MIB)
    less = held(MIB, 0, 0, 0, other=10 * MIB)
    assert {p.role: p.size for p in parts_of_memory(less, state)} | {"other": 0, BEFORE_TRAINING: 10 * MIB} == {
        p.role: p.size for p in parts_of_memory(less, state)
    }


def test_without_measurement_at_load_nothing_is_set_apart() -> None:
    assert [part.role for part in parts_of_memory(held(MIB, 0, 0, 0), RunState())] == [
        role for role in MEMORY_PARTS if role not in (BEFORE_TRAINING, "buckets", "input", "offloaded")
    ]


def test_batches_and_offloaded_have_part() -> None:
    without = ev.MemoryMeasured(1.0, 1, Phase.LOAD, held(MIB, 0, 0, 0), None, True, True)
    some = MemoryBytes(MIB, 0, 0, 0, 0, 0, 6 * MIB, 2 * MIB, 3 * MIB)
    assert not {"input", "offloaded"} & {part.role for part in parts_of_memory(without.held, state_after(without))}
    state = state_after(without, ev.MemoryMeasured(1.0, 1, Phase.FORWARD, some, None, True, True))
    for one in (without.held, some):
        assert {"input", "offloaded"} <= {part.role for part in parts_of_memory(one, state)}
    unknown = MemoryBytes(MIB, 0, 0, 0, 0, 0, MIB, None)
    assert {part.role: part.size for part in parts_of_memory(unknown, state)}["input"] is None


def test_offloaded_is_in_legend_without_bar() -> None:
    outside = MemoryBytes(MIB, 0, 0, 0, 0, 0, MIB, 0, 3 * MIB, True)
    lines = phase_table(state_after(ev.MemoryMeasured(1.0, 1, Phase.FORWARD, outside, None, True, True)), 61, 18).lines
    forward = next(line for line in lines if line[0][0][1:].startswith("forward"))
    assert "offloaded" not in {role for _, role in forward}
    assert "parameters" in {role for _, role in forward}
    shown = " ".join(text(lines).split())
    assert "offloaded 3.00 MiB" in shown


@pytest.mark.parametrize(
    ("width", "dash", "other"), [(36, "activ –", "+act 9.00 MiB"), (61, "activations –", "other+activ 9.00 MiB")]
)
def test_unknown_activations_are_dash(width: int, dash: str, other: str) -> None:
    unknown = ev.MemoryMeasured(1.0, 1, Phase.ZERO_GRAD, held(MIB, 0, 0, None, other=9 * MIB), None, True, False)
    lines = phase_table(state_after(unknown), width, 20).lines
    words = " ".join(text(lines).split())
    assert dash in words
    assert other in words
    bar = {role for part, role in lines[-1] + lines[4] if part.strip()}
    assert "other" in bar
    assert "activations" not in bar


def test_arrows_go_through_measured_phases() -> None:
    assert next_phase(RunState(), None, 1) is None
    assert next_phase(RUNNING, None, 1) is Phase.BACKWARD, "it begins at the fullest"
    assert next_phase(RUNNING, Phase.LOAD, -1) is Phase.LOAD
    assert next_phase(RUNNING, Phase.OPTIMIZER, 1) is Phase.ZERO_GRAD
    assert next_phase(RUNNING, Phase.ZERO_GRAD, 9) is Phase.ZERO_GRAD


def test_the_lines_know_their_phases() -> None:
    view = phase_table(EVERY_PHASE, 61, 18)
    assert len(view.phases) == len(view.lines)
    for line, phase in zip(view.lines, view.phases):
        assert phase is None or line_text(line)[1:].startswith(phase.value)


def test_training_phases_come_before_others() -> None:
    rows = [line[1:].split()[0] for line in text(phase_table(RUNNING, 61, 12).lines).splitlines()[:5]]
    assert rows == ["load", "forward", "backward", "optimizer", "zero_grad"]
    assert "eval" not in rows


def test_phase_that_was_not_seen_is_dash() -> None:
    state = state_after(ev.MemoryMeasured(1.0, 0, Phase.LOAD, held(MIB, 0, 0, 0), None, True, True))
    assert row(phase_table(state, 61, 18).lines, Phase.FORWARD).split() == ["forward", "–"]


FULL = state_after(
    ev.MemoryMeasured(1.0, 0, Phase.LOAD, held(MIB, 0, 0, 0, other=5 * MIB), None, True, True),
    ev.MemoryMeasured(
        1.0,
        1,
        Phase.FORWARD,
        MemoryBytes(*[10 * MIB] * 6, 90 * MIB, *[10 * MIB] * 2, buckets=10 * MIB),
        None,
        True,
        True,
    ),
)


def bar_of_forward(*, colour: bool = True) -> list[tuple[str, str]]:
    lines = phase_table(FULL, 90, 20, MemoryOptions(colour=colour)).lines
    found = next(line for line in lines if line[0][0][1:].startswith("forward"))
    return [(part, role) for part, role in found if role in MEMORY_PARTS]


def test_parts_have_same_role_everywhere() -> None:
    legend = [role for line in phase_table(FULL, 90, 20).lines[5:] for _, role in line if role in MEMORY_PARTS]
    assert [role for _, role in bar_of_forward()] == [role for role in MEMORY_PARTS if role != BEFORE_TRAINING]
    assert sorted(legend) == sorted(MEMORY_PARTS)


def test_legend_is_of_fullest_main_phase() -> None:
    later = ev.MemoryMeasured(99.0, 41, Phase.ZERO_GRAD, held(MIB, 0, 0, 0), None, True, True)
    for state in (RUNNING, state_after(*coop_run(40), later)):
        assert "at the end of forward" in text(phase_table(state, 61, 18).lines)


def test_without_colour_parts_have_patterns_of_their_own() -> None:
    assert len({part[0] for part, _ in bar_of_forward(colour=False)}) == len(MEMORY_PARTS) - 1


def test_the_machine_has_a_line() -> None:
    gib = 1024 * MIB
    sample = ev.DeviceSampled(1.0, 1, "nvml", 2 * gib, 24 * gib, 9 * gib, 14 * gib, 8 * gib, 7 * gib, 8 * gib, 0.83)
    shown = text(phase_table(state_after(*coop_run(3), sample), 120, 18).lines)
    for part in (
        "host 2.00 GiB of 24.0 GiB",
        "process (NVML) 8,192 MiB = 7,168 allocated + 1,024 cached",
        "device 9.00 GiB of 14.0 GiB",
        "busy 83%",
    ):
        assert part in shown


def test_empty_panels_say_what_will_fill_them() -> None:
    assert "Waiting" in text(phase_table(RunState(), 40, 10).lines)
    assert "ended" in text(phase_table(state_after(ev.RunEnded(1.0, 0, 0, None)), 40, 10).lines)


sizes = st.integers(min_value=-(2**50), max_value=2**70)


@given(
    st.builds(
        MemoryBytes, sizes, sizes, sizes, sizes, st.none() | sizes, st.none() | sizes, st.none() | sizes,
        st.none() | sizes, sizes, st.booleans(),
    ),
    st.none() | sizes, st.booleans(), st.sampled_from(Phase), st.sampled_from(SIZES),
)  # fmt: skip
def test_any_ledger_can_be_shown(
    known: MemoryBytes, peak: int | None, exact: bool, phase: Phase, size: tuple[int, int]
) -> None:
    state = state_after(ev.MemoryMeasured(1.0, 1, phase, known, peak, exact, exact))
    assert phase_table(state, *size).lines
    assert phase_table(state, *size, MemoryOptions(phase, focused=True, colour=False)).lines


def test_held_graphs_have_line_while_alive() -> None:
    alive, gone = ev.GraphsAlive(9.0, 40, 12, True, 5, 24 * MIB), ev.GraphsAlive(9.5, 41, 0, False, 0, 0)
    words = "graphs of ≥12 forwards alive since step 5: 24.0 MiB"
    assert words in text(phase_table(state_after(*coop_run(40), alive), 90, 20).lines)
    assert words not in text(phase_table(state_after(*coop_run(40), alive, gone), 90, 20).lines)


@pytest.mark.parametrize("size", [(70, 20), (36, 12), (29, 16)])
def test_old_rows_are_dim_with_step(size: tuple[int, int]) -> None:
    """Evaluation was measured at step 40, the others at 60; what was there before training is of no step."""
    state = state_after(
        *coop_run(60), ev.MemoryMeasured(9.0, 40, Phase.EVAL, held(26 * MIB, 0, 0, 0), None, True, True)
    )
    for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER):
        last = state.phases[phase].last
        assert last is not None
        apply(state, replace(last, step=60))
    state.steps_per_second = 5.0
    lines = phase_table(state, *size).lines
    for phase in (*MAIN_PHASES, Phase.EVAL):
        line = next(line for line in lines if line[0][0][1:].startswith(phase.value))
        newest = phase_total(state, phase)
        total = bytes_text(newest.bytes if newest is not None else None)
        role = next(role for part, role in line if part == f" {total}")
        assert role == (STALE if phase is Phase.EVAL else "text"), phase
        assert ("@40" in text((line,))) is (phase is Phase.EVAL)
    assert all(line_width(line) <= size[0] for line in lines)


@pytest.mark.parametrize("width", [29, 43, 70])
def test_total_of_other_step_names_it(width: int) -> None:
    state = step_memory.state(60)
    apply(state, ev.StepMemoryMeasured(6.2, 61, (ev.StepTotals(61, None, 70 * MIB, None, None),)))
    state.step, state.steps_per_second = 61, 20.0
    lines = phase_table(state, width, 18, MemoryOptions(Phase.FORWARD)).lines
    shown = {phase: row(lines, phase) for phase in (Phase.LOAD, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)}
    assert [phase.value for phase, line in shown.items() if "@" in line] == ["backward"]
    assert "@61" in shown[Phase.BACKWARD]


def test_old_phase_numbers_are_dim() -> None:
    state = state_after(*coop_run(60))
    state.steps_per_second, state.step = 5.0, 100
    assert roles_of_legend(state) == {STALE}
    assert ", step 57" in text(phase_table(state, 70, 20).lines)
    state.step = 60
    assert roles_of_legend(state) == {"text", STALE}, "a dash and a zero are dim anyway"


def roles_of_legend(state: RunState) -> set[str]:
    lines = phase_table(state, 70, 20).lines
    begin = next(index for index, line in enumerate(lines) if "at the end of" in text((line,)))
    entries = [line for line in lines[begin + 1 :] if any("parameters" in part for part, _ in line)]
    return {role for part, role in entries[0] if any(letter.isdigit() for letter in part)} | {STALE}


@pytest.mark.parametrize("width", [43, 61, 70])
def test_totals_are_newest_and_parts_dated(width: int) -> None:
    state = step_memory.state(60)
    state.step = 60
    newest = step_memory.totals(60)
    lines = phase_table(state, width, 18).lines
    for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER):
        assert bytes_text(getattr(newest, phase) - step_memory.BEFORE) in row(lines, phase)
    sampled = state.phases[Phase.FORWARD].last
    assert f"forward, step {sampled.step}" in text(lines)


def test_spike_that_is_peak_has_one_line() -> None:
    shown = text(phase_table(step_memory.state(60, {40: 300 * MIB}), 70, 20).lines)
    size = ((step_memory.totals(40, 300 * MIB).peak or 0) - step_memory.BEFORE) / MIB
    assert f"▲ peak ≥{size:.0f} MiB at step 40 " in shown
    assert shown.count("spike") == 1
    both = text(phase_table(step_memory.state(60, {20: 300 * MIB, 40: 64 * MIB}), 70, 20).lines)
    assert "spike at step 40" in both
    assert "at step 20 in forward (spike)" in both
