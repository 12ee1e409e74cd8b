from __future__ import annotations

from dataclasses import replace

import pytest

from gradtui.protocol import commands
from gradtui.protocol.effects import Effect, StepMemory, TimeChange
from gradtui.protocol.events import FreezeVerified, ReceiptTaken
from gradtui.run.state.changes.changes import Change, ChangeStatus
from gradtui.run.state.parts.prediction import Prediction
from gradtui.run.text.effects import (
    change_results,
    change_words,
    effect_results,
    effect_text,
    largest_result,
    receipt_text,
    receipt_texts,
    sizes_text,
    time_text,
)

KIB, MIB = 2**10, 2**20
BEFORE = StepMemory(10, None, 90 * MIB, 20 * MIB)
AFTER = StepMemory(12, None, 99 * MIB + MIB // 4, 20 * MIB)


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (90 * MIB, 99 * MIB + MIB // 4, "90.0 → 99.2 MiB"),
        (512 * KIB, 3 * MIB, "512.0 KiB → 3.0 MiB"),
        (0, 12, "0 → 12 B"),
    ],
)
def test_unit_that_both_sizes_have_is_named_once(before: int, after: int, text: str) -> None:
    assert sizes_text(before, after) == text


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (TimeChange(0.196, 0.240, 0.012), "196 → 240 ms ± 12.0"),
        (TimeChange(2.5, 1.25, 0.125), "2.50 → 1.25 s ± 0.12"),
        (TimeChange(250e-6, 2e-3, 50e-6), "250 → 2,000 µs ± 50.0"),
    ],
)
def test_the_duration_of_a_step(change: TimeChange, text: str) -> None:
    assert time_text(change) == text


def test_total_after_backward_replaces_missing_peak() -> None:
    effect = Effect(BEFORE, AFTER, joined=(("Adam", 12),))
    assert effect_results(effect) == ("90.0 → 99.2 MiB", "12 tensors joined Adam")
    assert effect_text(effect) == "memory at the end of backward 90.0 → 99.2 MiB, 12 tensors joined Adam"


def test_a_peak_comes_first() -> None:
    effect = Effect(replace(BEFORE, peak=100 * MIB), replace(AFTER, peak=110 * MIB), TimeChange(0.2, 0.3, 0.01))
    assert effect_results(effect) == ("peak 100.0 → 110.0 MiB", "200 → 300 ms ± 10.0")
    assert effect_text(effect) == "memory peak 100.0 → 110.0 MiB, step 200 → 300 ms ± 10.0"


def test_only_what_differs_is_compared() -> None:
    assert effect_results(Effect(BEFORE, replace(BEFORE, activations=5 * MIB))) == ("activations 20.0 → 5.0 MiB",)
    assert effect_results(Effect(BEFORE, replace(BEFORE, total=90 * MIB + 1))) == ("memory as before",)
    assert effect_results(Effect(BEFORE, replace(BEFORE, total=90 * MIB - 16_640))) == ("90.0 MiB, 16.2 KiB less",)
    noisy = Effect(BEFORE, replace(AFTER, activations=5 * MIB), within_noise=("activations",))
    assert effect_results(noisy) == ("90.0 → 99.2 MiB",)
    assert effect_results(replace(noisy, within_noise=("activations", "total"))) == ("memory as before",)


def test_what_is_unknown_is_left_out() -> None:
    assert effect_results(Effect(BEFORE, StepMemory(12, None, None, None))) == ()
    assert effect_results(Effect(None, AFTER)) == ()


def test_changes_at_one_boundary_are_measured_together() -> None:
    assert effect_results(Effect(BEFORE, AFTER, others=1))[-1] == "together with 1 other change"


FORECAST = Prediction(0, 9 * MIB, MIB // 4, 9 * MIB + MIB // 2, True)
"""Forecasts what `AFTER` has, but for the peak, where that is compared."""


def test_what_was_forecast_stands_behind_what_was_measured() -> None:
    effect = Effect(BEFORE, replace(AFTER, activations=31 * MIB), TimeChange(0.196, 0.204, 0.012))
    made = replace(FORECAST, activations=11 * MIB)
    assert effect_results(effect, made) == (
        "90.0 → 99.2 MiB (forecast 99.2)",
        "activations 20.0 → 31.0 MiB (forecast 31.0)",
        "196 → 204 ms ± 12.0",
    )
    assert effect_text(effect, made).startswith("memory at the end of backward 90.0 → 99.2 MiB (forecast 99.2), act")
    assert largest_result(effect, made) == "activations 20.0 → 31.0 MiB (forecast 31.0)"
    assert effect_results(effect, replace(made, is_exact=False))[0].endswith("(forecast about 99.2)")


def test_the_forecast_of_a_peak_is_an_estimate() -> None:
    effect = Effect(replace(BEFORE, peak=100 * MIB), replace(AFTER, peak=110 * MIB))
    assert effect_results(effect, FORECAST) == ("peak 100.0 → 110.0 MiB (forecast about 109.5)",)


def test_missing_forecast_change_is_listed() -> None:
    effect = Effect(BEFORE, BEFORE)
    assert effect_results(effect, Prediction(0, 0, 0, 0, True)) == ("memory as before",)
    missed = Prediction(KIB - 20 * MIB, 0, 0, 0, True)
    assert effect_results(effect, missed) == ("activations 20.0 → 20.0 MiB (forecast 1.0 KiB)",)


def test_joint_changes_are_compared_with_no_forecast() -> None:
    results = effect_results(Effect(BEFORE, AFTER, others=1), FORECAST)
    assert results == ("90.0 → 99.2 MiB", "together with 1 other change")


def receipt_of(effect: Effect, new: Effect) -> ReceiptTaken:
    return ReceiptTaken(1.0, 12, 1, f"unfroze blocks.7: {effect_text(new)}", True, effect)


def test_memory_receipt_names_forecast_unlike_duration() -> None:
    effect = Effect(BEFORE, replace(AFTER, activations=21 * MIB))
    made = replace(FORECAST, activations=MIB)
    first = receipt_of(effect, effect)
    assert receipt_text(first, made) == f"unfroze blocks.7: {effect_text(effect, made)}"
    assert receipt_texts(first, made) == (
        "unfroze blocks.7 · 90.0 → 99.2 MiB (forecast 99.2) · activations 20.0 → 21.0 MiB (forecast 21.0)",
        "unfroze blocks.7 · 90.0 → 99.2 MiB (forecast 99.2)",
    )
    time = TimeChange(0.2, 0.3, 0.01)
    second = receipt_of(replace(effect, time=time), Effect(time=time))
    for receipt, forecast in ((first, None), (second, made)):
        assert receipt_text(receipt, forecast) == receipt.text
        assert receipt_texts(receipt, forecast) == ()


APPLIED = ChangeStatus.APPLIED


@pytest.mark.parametrize(
    ("command", "text", "words"),
    [
        (commands.SetTrainable(1, "blocks.7", False), "", "froze blocks.7"),
        (commands.SetTrainable(1, "", True), "", "unfroze the model"),
        (commands.TrainOnly(1, "head"), "", "trains only head"),
        (commands.SetCheckpointing(1, "blocks.7", True), "", "checkpointed blocks.7"),
        (commands.SetCheckpointing(1, "blocks.7", False), "", "stopped checkpointing blocks.7"),
        (commands.SetGroup(1, 0, 0, 0.5), "", "set learning rate to 0.5 of group 0"),
        (commands.SetLearningRate(1, "head", 0.5), "", "set lr 0.5 of head"),
        (commands.Undo(1), "froze blocks.7: 12 tensors, 605k parameters", "undo: froze blocks.7"),
        (commands.Undo(1), "unfroze all but :head: 1 tensor; froze :head: 2 tensors", "undo: unfroze all but :head"),
        (commands.Undo(1), "no longer checkpoints 0; and more", "undo: no longer checkpoints 0"),
    ],
)
def test_an_applied_change_is_named_in_the_past(command: commands.Command, text: str, words: str) -> None:
    assert change_words(Change(1, command, APPLIED, text)) == words


def test_unapplied_change_is_named_as_requested() -> None:
    command = commands.SetTrainable(1, "blocks.7", False)
    assert change_words(Change(1, command, ChangeStatus.PENDING)) == "freeze blocks.7"
    assert change_results(Change(1, command, ChangeStatus.REFUSED, "no reason")) == ("refused: no reason",)


def test_results_are_measured_and_verified() -> None:
    command = commands.SetTrainable(1, "blocks.7", False)
    receipt = ReceiptTaken(1.0, 12, 1, "text", True, Effect(BEFORE, AFTER))
    still, moved = FreezeVerified(1.0, 20, 1, 2, 10, ()), FreezeVerified(1.0, 20, 1, 2, 10, ("a",))
    change = Change(10, command, APPLIED, "", receipt, still)
    assert change_results(change) == ("90.0 → 99.2 MiB", "unchanged bit for bit for 10 steps")
    assert change_results(replace(change, verified=moved))[-1] == "1 of 2 tensors moved"
    assert change_results(replace(change, status=ChangeStatus.UNDONE))[0] == "undone"
    given_up = replace(receipt, text="blocks.7 is not checkpointed: why", held=False, effect=None)
    assert change_results(replace(change, receipt=given_up, verified=None)) == ("blocks.7 is not checkpointed: why",)
