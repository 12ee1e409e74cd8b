"""The one peak that the screen shows, who holds it, and its parts, which add up to it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from helpers.fakes import MIB, coop_model, held, row_of, started
from helpers.states import state_after

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.effects import Effect, StepMemory
from gradtui.protocol.vocabulary import Holding, Phase
from gradtui.run.reducer import apply
from gradtui.run.state.memory.peak_owners import peak_owners
from gradtui.run.state.memory.run_memory import memory_peak, run_peak
from gradtui.run.state.run_state import RunState
from gradtui.run.text import counted, effect_text, parts_at_peak

MODEL = coop_model()
ENCODER, BLOCK, CTX = (row_of(MODEL, path) for path in ("text_encoder", "text_encoder.blocks.3.mlp", "image_encoder"))
BEFORE = ev.MemoryMeasured(0.5, 0, Phase.LOAD, held(MIB, 0, 0, 0, other=40 * MIB), None, True, True)
F, B = Phase.FORWARD, Phase.BACKWARD


def measured_after(*events: ev.Event) -> RunState:
    return state_after(started(), MODEL, BEFORE, *events)


def profile(step: int, peak: int, at_peak: dict[int, int] | None = None) -> ev.StepMemoryProfiled:
    sizes = at_peak or {}
    rest = peak * MIB - sum(sizes.values())
    holdings = (
        *(Holding("activations", index, size, 1) for index, size in sizes.items()),
        Holding("other", -1, rest, 0),
    )
    return ev.StepMemoryProfiled(
        1.0, step, (50 * MIB, peak * MIB), 9, ((F, 0), (B, 1)), peak * MIB, B, BLOCK, holdings,
        (None,) * len(MODEL.modules), True, at_peak=tuple(sizes.get(index, 0) for index in range(len(MODEL.modules))),
    )  # fmt: skip


def totals(step: int, forward: int) -> ev.StepMemoryMeasured:
    made = ev.StepTotals(step, forward * MIB, 60 * MIB, 60 * MIB, forward * MIB)
    return ev.StepMemoryMeasured(step / 10, step, (made,))


def shown(state: RunState) -> tuple[float, int, Phase, bool]:
    peak = memory_peak(state)
    assert peak is not None
    return peak.bytes / MIB, peak.step, peak.phase, peak.bound == "exact"


def test_profiled_step_has_peak_with_any_ends() -> None:
    state = measured_after(totals(5, 90))
    assert shown(state) == (50, 5, F, False)
    apply(state, profile(6, 110))
    assert shown(state) == (70, 6, B, True)
    apply(state, totals(7, 111))
    assert shown(state) == (70, 6, B, True), "steps of one kind differ a little"
    highest = run_peak(state)
    assert highest is not None
    assert (highest.bytes, highest.step) == (71 * MIB, 7)


def test_step_that_was_much_higher_has_peak() -> None:
    state = measured_after(profile(6, 110), totals(7, 150))
    assert shown(state) == (110, 7, F, False)


def test_after_a_change_the_peak_is_measured_again() -> None:
    change = ev.CommandApplied(2.0, 7, SetTrainable(1, "ctx", False), "froze ctx", (0,))
    state = measured_after(totals(3, 150), profile(6, 110), change)
    assert shown(state) == (110, 3, F, False)
    apply(state, totals(9, 90))
    assert shown(state) == (70, 6, B, True), "a total at the end of a phase is no peak yet"
    apply(state, profile(10, 100))
    assert shown(state) == (60, 10, B, True)
    highest = run_peak(state)
    assert highest is not None
    assert (highest.bytes, highest.step) == (110 * MIB, 3)


def test_parts_of_peak_add_up_to_it() -> None:
    state = measured_after(profile(6, 110, {BLOCK: 30 * MIB, CTX: 10 * MIB}))
    parts = parts_at_peak(state)
    assert [(part.role, part.size) for part in parts] == [("activations", 40 * MIB), ("other", 30 * MIB)]
    peak = memory_peak(state)
    assert peak is not None
    assert sum(part.size or 0 for part in parts) == peak.bytes


def test_parts_of_allocator_peak_add_up() -> None:
    phases = [
        ev.MemoryMeasured(1.0, 6, phase, held(20 * MIB, 0, 0, kept * MIB, other=40 * MIB), peak * MIB, True, True)
        for phase, kept, peak in ((F, 30, 95), (B, 0, 110), (Phase.OPTIMIZER, 0, 60))
    ]
    state = measured_after(*phases)
    assert shown(state) == (70, 6, B, True)
    parts = {part.role: part.size or 0 for part in parts_at_peak(state)}
    assert set(parts) == {"parameters", "buffers", "temporaries"}
    assert sum(parts.values()) == 70 * MIB


def owners(state: RunState) -> Sequence[tuple[str, int]]:
    return [(state.tree.modules[index].path, size // MIB) for index, size in peak_owners(state)]


def test_stack_is_one_owner_by_largest_part() -> None:
    blocks = [row_of(MODEL, f"text_encoder.blocks.{number}.mlp") for number in range(8)]
    state = measured_after(profile(6, 110, {**dict.fromkeys(blocks, 5 * MIB), CTX: 10 * MIB}))
    assert owners(state) == [("text_encoder.blocks", 40), ("image_encoder", 10)]
    one = measured_after(profile(6, 110, {blocks[3]: 30 * MIB, blocks[4]: 4 * MIB, ENCODER: 2 * MIB}))
    assert owners(one)[:2] == [("text_encoder.blocks.3.mlp", 30), ("text_encoder.blocks.4", 4)]
    assert sum(size for _, size in peak_owners(one)) == 36 * MIB
    assert owners(measured_after()) == []


@pytest.mark.parametrize("peaks", [(None, None), (110, 100)])
def test_receipts_count_as_the_rest_of_the_screen(peaks: tuple[int | None, int | None]) -> None:
    sides = [
        StepMemory(step, None if peak is None else peak * MIB, total * MIB, 10 * MIB)
        for step, peak, total in ((6, peaks[0], 95), (9, peaks[1], 85))
    ]
    effect = Effect(*sides)
    text = f"froze ctx: {effect_text(effect)}"
    change = ev.CommandApplied(2.0, 7, SetTrainable(1, "ctx", False), "froze ctx", (0,))
    state = measured_after(profile(6, 110), change, ev.ReceiptTaken(2.0, 9, 1, text, True, effect))
    apply(state, profile(10, 100))
    kept = counted(state, state.receipts[1])
    assert kept.effect is not None
    assert kept.effect.before is not None
    assert kept.effect.after is not None
    assert (kept.effect.before.total, kept.effect.after.total) == (55 * MIB, 45 * MIB)
    assert (kept.effect.before.peak, kept.effect.after.peak) == (70 * MIB, 60 * MIB)
    assert all("95" not in entry.text and "110" not in entry.text for entry in state.log)
