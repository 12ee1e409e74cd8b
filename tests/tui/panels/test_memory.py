"""The memory panel's main view: the curve within a step, what is held, and the title with the step of the figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from helpers.fakes import MIB, coop_model, coop_run, held, row_of, started
from helpers.lines import line_text
from helpers.states import state_after

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.vocabulary import Holding, MemoryBytes, OptimizerInfo, Phase
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.tui.panels.memory import memory_table, memory_title
from gradtui.tui.panels.memory_held import newest, owner_line
from gradtui.tui.panels.memory_notes import spike_line, warning_lines
from gradtui.tui.panels.memory_step import Drawing, live_line, scale_of, step_lines
from gradtui.tui.rendering import STALE, Line, line_width

MODEL = coop_model()
BLOCK = row_of(MODEL, "text_encoder.blocks.3.mlp")
SIZES = [(28, 6), (50, 9), (68, 14), (20, 4), (120, 30)]
F, B, OPT = Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER


def text(lines: list[Line]) -> list[str]:
    return [line_text(line).rstrip() for line in lines]


def profile(step: int = 285, share: float = 1.0) -> ev.StepMemoryProfiled:
    totals = tuple(round(share * total * MIB) for total in (80, 90, 99.3, 97, 95, 85, 80, 79))
    highest = (None,) * len(MODEL.modules)
    phases = ((F, 0), (B, 2), (OPT, 6))
    return ev.StepMemoryProfiled(9.0, step, totals, 900, phases, max(totals), B, BLOCK, (), highest, True)


HELD = MemoryBytes(
    round(19.2 * MIB), 0, round(2.3 * MIB), round(4.7 * MIB), round(20.2 * MIB), round(48.8 * MIB), round(95.2 * MIB)
)
BEFORE = ev.MemoryMeasured(0.5, 0, Phase.LOAD, held(MIB, 0, 0, 0, other=round(46.7 * MIB)), None, True, True)
SECONDS = ((F, 3.7), (B, 4.8), (OPT, 0.4), (Phase.DATA, 1.1))
TIMES = ev.Progress(
    8.0, 285, 285, 285, 0, (285,), tuple(ev.PhaseTime(phase, each, 1) for phase, each in SECONDS), 0.0, 1, 1
)
RUN = (
    started(),
    MODEL,
    ev.OptimizersFound(0.6, 0, (OptimizerInfo("Adam", 1, (0,), 0, (0,)),)),
    BEFORE,
    TIMES,
    ev.MemoryMeasured(8.0, 285, F, HELD, None, False, True),
)
SHARES = {F: 0.37, B: 0.48, OPT: 0.04}


def shown(state: RunState, width: int, height: int) -> list[str]:
    lines = step_lines(state, width, height, scale_of(state, Drawing()), SHARES)
    assert len(lines) <= height
    assert all(line_width(line) <= width for line in lines)
    return text(lines)


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("events", [(), (started(),), RUN, (*RUN, profile()), tuple(coop_run(40))])
def test_it_keeps_to_its_place(width: int, height: int, events: tuple[ev.Event, ...]) -> None:
    assert shown(state_after(*events), width, height)


def test_narrow_panel_has_curve_phases_and_numbers() -> None:
    lines = shown(state_after(*RUN, profile()), 28, 6)
    # Less the 46.7 MiB from before training the step is at 32.3 to 52.6 MiB.
    assert lines[0].endswith("▲ backward @285")
    assert [line[:3] for line in lines[:3]] == ["  │", "55┤", "30┊"]
    assert "█" in lines[2]
    assert lines[3] == "  └fwd 37 % bwd 48 % opt 4 %"
    # Of 48.8 MiB that nothing explains, 46.7 were there before training. The rest is 2.3 of gradients and the other 2.1.
    assert lines[4].split() == ["param", "19.2", "optim", "4.7"]
    assert lines[5].split() == ["activ", "20.2", "rest", "4.4", "MiB"]
    earlier = shown(state_after(*RUN, profile(240)), 28, 6)
    assert earlier[0].endswith("▲ backward @240")


EVERY_PART = MemoryBytes(
    19 * MIB, 6 * MIB, 23 * MIB, 4 * MIB, 20 * MIB, round(46.7 * MIB) + 30 * MIB, 160 * MIB, input=12 * MIB
)
"""With the bytes from before training (46.7 MiB), which are no part of a step: seven parts, the smallest of 4 MiB."""


@pytest.mark.parametrize("width", range(24, 44))
def test_narrow_panel_leaves_out_smallest_parts_for_unit(width: int) -> None:
    state = state_after(started(), MODEL, BEFORE, TIMES, ev.MemoryMeasured(8.0, 285, F, EVERY_PART, None, False, True))
    numbers = shown(state, width, 9)[-2:]
    words = " ".join(numbers).split()
    assert words[-1] == "MiB"
    sizes = {"param": 19, "bufs": 6, "grads": 23, "optim": 4, "activ": 20, "input": 12, "other": 30}
    largest_first = sorted(sizes, key=sizes.__getitem__, reverse=True)
    named = [name for name in words if name in sizes]
    assert set(named) == set(largest_first[: len(named)])
    assert named == [name for name in sizes if name in named], "in the order of the bar"
    # An entry takes at most 11 cells and a gap, the unit 4 with its gap. What is left out has an entry too.
    assert len(named) + ("rest" in words) >= (width + 1) // 12 + (width + 1 - 4) // 12
    numbers = [float(word) for word in words if word.replace(".", "").isdigit()]
    assert sum(numbers) == pytest.approx(sum(sizes.values()), abs=0.5)


def test_wide_panel_names_peak_and_earlier() -> None:
    lines = shown(state_after(*RUN, profile()), 50, 9)
    assert "▲ text_encoder.blocks.3.mlp" in lines[0]
    assert lines[1].startswith("  55┤")
    assert [line[:5] for line in lines[2:4]] == ["from│", "  30┊"]
    phases, bar = lines[4], lines[5]
    assert phases.startswith(" MiB└forward 37 % ─")
    assert "backward 48 %" in phases
    assert bar.endswith("end of forward, step 285")
    words = " ".join(lines[6:8])
    for part in (
        "parameters 19.2",
        "gradients  2.3",
        "Adam  4.7",
        "activations 20.2",
        "other  2.1",
        "MiB",
    ):
        assert part in words
    assert "before" not in words
    assert lines[8] == "+46.7 MiB held before training (Python, libraries)"


@pytest.mark.parametrize("width", [28, 60])
@pytest.mark.parametrize("colour", [True, False])
def test_every_part_of_the_peak_has_a_sign(width: int, colour: bool) -> None:
    kinds = ("parameters", "activations", "temporaries")
    held = tuple(Holding(kind, -1, 10 * MIB, 1) for kind in kinds)
    whole = replace(profile(), holdings=(*held, Holding("other", -1, round(99.3 * MIB) - 30 * MIB, 0)))
    state = state_after(*RUN, whole)
    lines = step_lines(state, width, 9, scale_of(state, Drawing()), SHARES, colour=colour)
    numbers = [float(word) for line in text(lines)[-3:] for word in line.split() if word.replace(".", "").isdigit()]
    # 99.3 − 46.7 MiB from before training, which are in `other`.
    assert any(abs(sum(numbers[begin : begin + 4]) - 52.6) < 0.2 for begin in range(len(numbers)))


def test_bar_is_to_scale_of_curve() -> None:
    state = state_after(*RUN, profile())
    lines = step_lines(state, 68, 14, scale_of(state, Drawing()), SHARES)
    bar = next(line for line in lines if line[0][0].startswith("▇") and len(line[0][0]) > 2)
    room = 68 - len(" end of forward, step 285")
    filled = sum(len(part) for part, _ in bar if part.startswith("▇"))
    # 19.2 + 2.3 + 4.7 + 20.2 + 2.1 of 55 MiB.
    assert filled == round(48.5 / 55 * room)


def test_the_axis_only_grows_until_the_models_change() -> None:
    state = state_after(*RUN, profile())
    first = scale_of(state, Drawing())
    assert (first.low, first.high) == (30 * MIB, 55 * MIB)
    apply(state, profile(290, 0.98))
    drawn = Drawing(state.tree.version, first)
    assert scale_of(state, drawn) == first
    apply(state, profile(295, 1.2))
    grown = scale_of(state, drawn)
    # 0.98 · 99.3 − 46.7 = 50.6 and 0.98 · 79 − 46.7 = 30.7 are within, 1.2 · 99.3 − 46.7 = 72.5 is not;
    # the lowest is 1.2 · 79 − 46.7 = 48.1.
    assert (grown.low, grown.high) == (30 * MIB, 75 * MIB)
    apply(state, profile(300, 0.6))
    other = scale_of(state, Drawing(state.tree.version - 1, grown))
    # 0.6 · 99.3 − 46.7 = 12.9, and the lowest is 0.6 · 79 − 46.7 = 0.7.
    assert (other.low, other.high) == (0, 15 * MIB)


def test_panel_before_profile_says_when() -> None:
    lines = shown(state_after(*RUN), 50, 9)
    words = " ".join(" ".join(lines).split())
    assert "Profile a step" in words
    assert "1 % of" in words
    assert "parameters 19.2" in words
    ended = state_after(*RUN, ev.RunEnded(9.0, 285, 0, None))
    assert "No step was profiled" in " ".join(shown(ended, 50, 9))


def test_empty_panels_say_what_will_fill_them() -> None:
    assert "Waiting" in shown(RunState(), 40, 10)[0]
    assert "ended" in shown(state_after(ev.RunEnded(1.0, 0, 0, None)), 40, 10)[0]


def test_bar_is_of_fullest_phase_of_newest_step() -> None:
    less = ev.MemoryMeasured(9.0, 290, OPT, held(MIB, 0, 0, 0), None, True, True)
    found = newest(state_after(*RUN, less))
    assert (found.phase, found.step) == (F, 285)


def test_graphs_that_stay_alive_and_growth_have_line() -> None:
    alive = ev.GraphsAlive(9.0, 285, 12, True, 5, 24 * MIB)
    grows = tuple(
        ev.MemoryMeasured(9.0, step, OPT, held(MIB, 0, 0, step * MIB), None, True, True) for step in range(290, 314)
    )
    lines = shown(state_after(*RUN, profile(), alive, *grows), 68, 14)
    assert any("≥12 forwards alive since step 5: 24.0 MiB" in line for line in lines)
    # 24 readings, 1 MiB apart.
    assert any("23.0 MiB from step 290 to 313: activations" in line for line in lines)


def test_the_title_names_the_step_and_the_peak() -> None:
    state = state_after(*RUN, profile())
    assert memory_title(state) == "peak 52.6 MiB in backward, step 285"
    state.step = 379
    assert memory_title(state, 40) == "peak 52.6 MiB in backward, step 285"
    assert memory_title(state, 30) == "peak 52.6 MiB backward @285"
    assert memory_title(state, 24) == "peak 52.6 MiB bwd @285"
    assert memory_title(state, 19) == "52.6 MiB bwd @285"
    assert memory_title(state, 16) == "peak 52.6 MiB"
    assert memory_title(state, 10) == "52.6 MiB"
    assert memory_title(state_after(*RUN)) == "step 285"
    assert memory_title(RunState()) == ""


def roles(lines: Sequence[Line]) -> dict[str, str]:
    return {part.strip(): role for line in lines for part, role in line}


@pytest.mark.parametrize("size", [(28, 6), (60, 12)])
def test_old_numbers_are_dim_and_have_their_step(size: tuple[int, int]) -> None:
    state = state_after(*RUN, profile())
    state.steps_per_second = 5.0
    fresh = roles(step_lines(state, *size, scale_of(state, Drawing()), SHARES))
    assert (fresh["19.2"], fresh["▲"]) == ("text", "warning")
    state.step = 333
    lines = step_lines(state, *size, scale_of(state, Drawing()), SHARES)
    old = roles(lines)
    assert (old["19.2"], old["20.2"]) == (STALE, STALE)
    assert "▲" not in old, "the label has one colour"
    assert "step 285" in memory_title(state)


def test_numbers_from_before_change_are_old() -> None:
    state = state_after(*RUN, profile(), ev.CommandApplied(9.0, 285, SetTrainable(1, "ctx", False), "froze ctx", (0,)))
    assert roles(step_lines(state, 60, 12, scale_of(state, Drawing()), SHARES))["19.2"] == STALE
    assert memory_title(state).endswith("step 285, before the last change")
    apply(state, ev.MemoryMeasured(9.1, 286, F, HELD, None, False, True))
    assert roles(step_lines(state, 60, 12, scale_of(state, Drawing()), SHARES))["19.2"] == "text"


def test_old_step_keeps_place_in_narrow_panel() -> None:
    state = state_after(*RUN, profile(240))
    state.step, state.steps_per_second = 123_333, 5.0
    for width in range(24, 44):
        assert any("@285" in line for line in shown(state, width, 6))


def test_title_of_table_names_source_and_estimates() -> None:
    state = state_after(*coop_run(40))
    assert memory_title(state, by_phase=True) == "by phase · step 37 · cpu ledger"
    guess = ev.MemoryMeasured(99.0, 41, F, held(MIB, 0, 0, 0), None, True, False)
    assert memory_title(state_after(started(), guess), by_phase=True).endswith("partly estimated")
    unknown = ev.MemoryMeasured(99.0, 41, Phase.ZERO_GRAD, held(MIB, 0, 0, None), None, True, False)
    assert memory_title(state_after(*coop_run(40), unknown), by_phase=True).endswith("cpu ledger"), (
        "a dash is no estimate"
    )


def test_exported_table_has_points_of_curve() -> None:
    table = memory_table(state_after(*RUN, profile()))
    assert table.columns == ("optimizer_step", "phase", "bytes")
    assert table.rows[0] == (285, "forward", 80 * MIB)
    assert [row[1] for row in table.rows] == ["forward"] * 2 + ["backward"] * 4 + ["optimizer"] * 2
    assert memory_table(RunState()).rows == ()


TOTALS = ev.StepTotals(329, round(143.8 * MIB), round(139.1 * MIB), round(140.4 * MIB), round(143.8 * MIB))
LIVE = (*RUN, ev.StepMemoryMeasured(9.5, 329, (TOTALS,)))
SPIKE = ev.MemorySpikeFound(9.6, 320, B, round(207.8 * MIB), round(143.8 * MIB), 1)


def lines_at(size: tuple[int, int], *events: ev.Event) -> list[Line]:
    state = state_after(*events)
    return step_lines(state, *size, scale_of(state, Drawing()), SHARES)


@pytest.mark.parametrize(
    ("width", "words"),
    [
        (20, "@329▌97▌92▌94 MiB"),
        (23, "@329▌97.1▌92.4▌93.7 MiB"),
        (24, "@329 ▌97.1▌92.4▌93.7 MiB"),
        (40, "@329 fwd 97.1 bwd 92.4 opt 93.7 MiB"),
        (50, "step 329, ends of fwd 97.1  bwd 92.4  opt 93.7 MiB"),
        (49, "ends @329: fwd 97.1  bwd 92.4  opt 93.7 MiB"),
        (68, "step 329, ends of forward 97.1  backward 92.4  optimizer 93.7 MiB"),
    ],
)
def test_newest_totals_are_below_phases(width: int, words: str) -> None:
    """The bytes from before training are subtracted, as in the curve above and in the header."""
    lines = text(lines_at((width, 12), *LIVE, profile()))
    phases = next(at for at, line in enumerate(lines) if "fwd 37" in line or "forward 37" in line)
    assert lines.index(words) == (len(lines) - 1 if width >= 44 else phases + 1)


def test_unread_phase_is_left_out() -> None:
    state = state_after(*RUN, ev.StepMemoryMeasured(9.5, 329, (ev.StepTotals(329, None, 100 * MIB, None, None),)))
    assert text(live_line(state, 50))[0].startswith("step 329, ")
    roles = dict(live_line(state, 50)[0])
    assert roles["53.3"] == "text"
    state.step, state.steps_per_second = 400, 5.0
    assert dict(live_line(state, 50)[0])["53.3"] == STALE
    assert live_line(state_after(*RUN), 50) == []


def test_narrow_phase_keeps_place_and_colour() -> None:
    state = state_after(*RUN, ev.StepMemoryMeasured(9.5, 329, (ev.StepTotals(329, None, 100 * MIB, None, None),)))
    state.step, state.steps_per_second = 400, 5.0
    (line,) = live_line(state, 16)
    assert text((line,)) == ["@329▌–▌53▌– MiB"]
    assert [role for part, role in line if part == "▌"] == ["phase-forward", "phase-backward", "phase-optimizer"]
    assert dict(line)["53"] == STALE


@pytest.mark.parametrize(
    ("width", "words"),
    [
        (68, "▲ spike at step 320 in backward: ≥161 MiB (+64.0 MiB)"),
        (50, "▲ spike at step 320: ≥161 MiB (+64.0 MiB)"),
        (24, "▲ spike @320: ≥161 MiB"),
        (16, "▲ @320: ≥161 MiB"),
    ],
)
def test_the_newest_spike_has_a_line(width: int, words: str) -> None:
    found = text(warning_lines(state_after(*LIVE, SPIKE), width, 9))
    assert found == [words]


def test_an_old_spike_stays_and_warns_no_longer() -> None:
    state = state_after(*LIVE, SPIKE)
    state.step, state.steps_per_second = 325, 5.0
    assert spike_line(state, 50)[0][0] == ("▲ ", "warning")
    state.step = 400
    assert spike_line(state, 50)[0][0] == ("▲ ", "muted")
    assert spike_line(state_after(*LIVE), 50) == []


def test_spike_takes_line_where_short() -> None:
    before = "+46.7 MiB held before training (Python, libraries)"
    assert before in text(lines_at((50, 9), *LIVE, profile()))
    with_spike = text(lines_at((50, 9), *LIVE, profile(), SPIKE))
    assert before not in with_spike
    assert any("spike at step 320" in line for line in with_spike)
    assert before in text(lines_at((50, 14), *LIVE, profile(), SPIKE))


def test_holders_have_the_unit_of_the_largest_number() -> None:
    held_by = [0] * len(MODEL.modules)
    held_by[BLOCK] = 1 << 19
    state = state_after(*RUN, replace(profile(), at_peak=tuple(held_by)))
    (line,) = [line_text(each) for each in owner_line(state, 70)]
    assert line.endswith(" 0.5  elsewhere 52.1 MiB")
    held_by[BLOCK] = 44
    assert owner_line(state_after(*RUN, replace(profile(), at_peak=tuple(held_by))), 70) == []
