"""The peak of a change where no allocator keeps one: that of the profiled steps before and after it."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.effects import Effect, StepMemory
from gradtui.protocol.vocabulary import MemoryBytes, Phase
from gradtui.run.reducer import apply
from gradtui.run.state.forecasts.forecast_score import compared
from gradtui.run.state.parts.prediction import Prediction
from gradtui.run.state.run_state import ModelChange, RunState
from gradtui.run.text.effects import effect_text

EFFECT = Effect(StepMemory(4, None, 4_000, 1_000, 400), StepMemory(7, None, 3_700, 800, 100))


def applied(number: int, step: int) -> ev.CommandApplied:
    return ev.CommandApplied(float(step), step, SetTrainable(number, "a", False), "froze a", ())


def profile(step: int, peak: int) -> ev.StepMemoryProfiled:
    phases = ((Phase.FORWARD, 0),)
    return ev.StepMemoryProfiled(float(step), step, (peak,), 1, phases, peak, Phase.FORWARD, -1, (), (), True)


def receipt(number: int = 1, effect: Effect = EFFECT) -> ev.ReceiptTaken:
    return ev.ReceiptTaken(7.0, 7, number, "", True, effect)


def peaks(*events: ev.Event, state: RunState | None = None) -> dict[int, tuple[int | None, int | None]]:
    state = state or RunState()
    for event in events:
        apply(state, event)
    found = {number: each.effect for number, each in state.receipts.items()}
    return {
        number: (effect.before.peak, effect.after.peak)
        for number, effect in found.items()
        if effect is not None and effect.before is not None and effect.after is not None
    }


def test_order_of_receipt_and_profile_does_not_matter() -> None:
    for last in permutations((receipt(), profile(7, 140))):
        assert peaks(profile(3, 100), applied(1, 5), *last) == {1: (100, 140)}


def backward(step: int, other: int) -> ev.MemoryMeasured:
    held = MemoryBytes(50, 0, 20, 0, 0, other - 10, other + 70, input=10)
    return ev.MemoryMeasured(float(step), step, Phase.BACKWARD, held, None, False, True)


def test_what_others_hold_is_no_effect() -> None:
    before, after = (backward(3, 30), profile(3, 100)), (backward(7, 5_030), profile(7, 5_085))
    assert peaks(*before, applied(1, 5), receipt(), *after) == {1: (100, 85)}


def test_what_python_allocates_within_step_is_no_effect() -> None:
    base = 24 << 20
    for grown, said in ((90 << 10, "memory as before"), (300 << 10, "memory peak 24.0 → 24.3 MiB")):
        state, effect = RunState(), replace(EFFECT, after=replace(EFFECT.before, step=7))
        peaks(profile(3, base), applied(1, 5), receipt(effect=effect), profile(7, base + grown), state=state)
        assert effect_text(state.receipts[1].effect) == said


def test_it_is_compared_with_the_forecast() -> None:
    state = RunState()
    state.forecast_of[1] = Prediction(-200, -300, 0, 45, True)
    peaks(profile(3, 100), applied(1, 5), receipt(), profile(7, 140), state=state)
    (entry,) = compared(state)
    assert (entry.forecast.peak, entry.measured["peak"]) == (45, 40)


def test_changes_at_one_boundary_share_their_peaks() -> None:
    events = applied(1, 5), applied(2, 5), receipt(1), receipt(2)
    assert peaks(profile(3, 100), *events, profile(7, 140)) == dict.fromkeys((1, 2), (100, 140))


@pytest.mark.parametrize(
    "events",
    [
        (applied(1, 5), receipt(), profile(7, 140)),
        (profile(3, 100), applied(1, 5), receipt(), profile(6, 140)),
        (profile(1, 100), applied(1, 5), receipt(), profile(7, 140)),
        (applied(2, 3), profile(4, 100), applied(1, 5), receipt(), profile(7, 140)),
        (profile(3, 100), applied(2, 4), applied(1, 5), receipt(), profile(7, 140)),
    ],
    ids=["none before", "first step after", "first step of all", "first step after another change", "another change"],
)
def test_profile_of_several_changes_does_not_count(events: tuple[ev.Event, ...]) -> None:
    assert peaks(*events)[1] == (None, None)


def test_first_step_of_later_models_does_not_count() -> None:
    state = RunState()
    state.model_changes.append(ModelChange(2, "Student", replaces=True))
    assert peaks(profile(3, 100), applied(1, 5), receipt(), profile(7, 140), state=state) == {1: (None, None)}


def test_nothing_is_filled_in_for_differing_batches() -> None:
    assert EFFECT.before is not None
    varying = replace(EFFECT, before=replace(EFFECT.before, activations=None))
    kept = replace(EFFECT, before=replace(EFFECT.before, peak=4_500))
    for effect, expected in ((varying, None), (kept, 4_500)):
        found = peaks(profile(3, 100), applied(1, 5), receipt(1, effect), profile(7, 140))
        assert found == {1: (expected, None)}
