"""What a change is said to have changed: bytes that the test counts itself, and durations that it makes up."""

from __future__ import annotations

import gc
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace

import pytest
import torch
from helpers.toggling import freeze, unfreeze
from helpers.training import square_step
from helpers.watched import Watched, watched
from torch import nn

from gradtui.probe.commands.receipts.receipts import Receipts
from gradtui.probe.frozen import VERIFY_STEPS
from gradtui.probe.runtime import StepTime
from gradtui.probe.samplers.cpu_memory import MallocAllocator, MemoryCounter, Reading
from gradtui.protocol.commands import Command, SetCheckpointing, SetGroup, TrainOnly, Undo
from gradtui.protocol.effects import StepMemory
from gradtui.protocol.events import ReceiptTaken
from gradtui.system.no_collection import no_collection

WIDTH = 64
LAYER = 4 * (WIDTH * WIDTH + WIDTH)
"""Bytes of one layer's parameters."""
At = Mapping[int, Sequence[Callable[[int], Command]]]


class OwnCount:
    """Counts the tensors of a model and its optimizer itself. `peaks`: it also keeps a peak, a thousand bytes higher."""

    name, device_type, exact = "test", "cpu", True

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, *, peaks: bool) -> None:
        self._model, self._optimizer, self._peaks = model, optimizer, peaks

    def read(self) -> Reading:
        total = 0
        for tensor in self._model.parameters():
            total += tensor.nbytes + (tensor.grad.nbytes if tensor.grad is not None else 0)
        for state in self._optimizer.state.values():
            total += state["momentum_buffer"].nbytes
        return Reading(total, total + 1_000, since_last=True) if self._peaks else Reading(total, None)


def train(at: At, *, frozen: bool = False, peaks: bool = False, steps: int = 12) -> Watched:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
    model[2].requires_grad_(not frozen)
    owned = [tensor for tensor in model.parameters() if tensor.requires_grad]
    optimizer = torch.optim.SGD(owned, lr=0.01, momentum=0.9)
    with watched(allocator=OwnCount(model, optimizer, peaks=peaks)) as seen:
        for _ in seen.steps(steps, at):
            square_step(model, optimizer, torch.ones(3, WIDTH))
    return seen


def totals(receipt: ReceiptTaken) -> tuple[int | None, int | None]:
    return receipt.effect.before.total, receipt.effect.after.total


def test_freeze_gives_back_gradients_of_what_it_freezes() -> None:
    (receipt,) = train({5: [freeze("2")]}).all(ReceiptTaken)
    # Parameters, gradients and momentum of two layers; then all but the gradients of one.
    assert totals(receipt) == (6 * LAYER, 5 * LAYER)
    assert (receipt.command, receipt.held) == (1, True)
    assert receipt.text.startswith(
        f"froze 2: memory at the end of backward {6 * LAYER / 1024:.1f} → {5 * LAYER / 1024:.1f} KiB"
    )


def test_the_receipt_names_a_selection_with_a_colon() -> None:
    (receipt,) = train({5: [lambda number: TrainOnly(number, ":biases")]}).all(ReceiptTaken)
    assert receipt.text.startswith("trains only :biases: memory at the end of backward ")


def test_an_unfreeze_names_the_optimizer_that_parameters_joined() -> None:
    (receipt,) = train({5: [unfreeze("2")]}, frozen=True).all(ReceiptTaken)
    # The momentum of the layer is there in the second step.
    assert totals(receipt) == (4 * LAYER, 6 * LAYER)
    assert receipt.effect.joined == (("SGD", 2),)
    assert receipt.text.endswith(", 2 tensors joined SGD")


def test_peak_is_compared_where_allocator_keeps_one() -> None:
    (receipt,) = train({5: [freeze("2")]}, peaks=True).all(ReceiptTaken)
    sides = (receipt.effect.before, receipt.effect.after)
    assert [side and side.peak for side in sides] == [6 * LAYER + 1_000, 5 * LAYER + 1_000]
    assert receipt.text.startswith("froze 2: memory peak ")


@pytest.mark.parametrize("make", [freeze("2"), lambda number: TrainOnly(number, "0")])
def test_an_undo_has_a_receipt_of_its_own(make: Callable[[int], Command]) -> None:
    done, undone = train({4: [make], 8: [Undo]}).all(ReceiptTaken)
    assert (done.command, undone.command) == (1, 2)
    assert totals(undone) == totals(done)[::-1]


def test_checkpointing_again_is_measured_under_its_command() -> None:
    at = {3: [lambda number: SetCheckpointing(number, "2", True)], 7: [Undo], 11: [Undo]}
    receipts = train({step: makes for step, makes in at.items() if step < 11}).all(ReceiptTaken)
    assert [(receipt.command, receipt.held) for receipt in receipts] == [(1, True), (2, True)]


def test_change_without_effect_has_no_receipt() -> None:
    assert not train({5: [lambda number: SetGroup(number, 0, 0, learning_rate=0.5)]}).all(ReceiptTaken)


def test_changes_at_one_boundary_say_so() -> None:
    receipts = train({5: [freeze("2"), freeze("0.bias")]}).all(ReceiptTaken)
    assert [receipt.command for receipt in receipts] == [1, 2]
    for receipt in receipts:
        assert totals(receipt) == (6 * LAYER, 5 * LAYER - 4 * WIDTH)
        assert receipt.text.endswith(", together with 1 other change")


def test_checkpointing_after_trial_is_measured_at_boundary() -> None:
    """The trial takes one step, and the measurements before are those of before all of them."""
    checkpoint = lambda number: SetCheckpointing(number, "0", True)  # noqa: E731
    receipts = train({5: [freeze("2"), checkpoint]}).all(ReceiptTaken)
    assert sorted(receipt.command for receipt in receipts) == [1, 2]
    for receipt in receipts:
        assert totals(receipt) == (6 * LAYER, 5 * LAYER)
        assert receipt.effect.others == 1


def test_later_change_is_not_part_of_receipt() -> None:
    first, second = train({5: [freeze("2")], 6: [freeze("0.bias")]}).all(ReceiptTaken)
    assert (first.step, *totals(first)) == (6, 6 * LAYER, 5 * LAYER)
    assert totals(second) == (5 * LAYER, 5 * LAYER - 4 * WIDTH)


def test_the_end_of_the_run_ends_the_wait() -> None:
    (receipt,) = train({5: [freeze("2")]}, steps=6).all(ReceiptTaken)
    assert totals(receipt) == (6 * LAYER, 5 * LAYER)


def test_first_step_has_nothing_to_compare_with() -> None:
    assert not train({0: [freeze("2")]}).all(ReceiptTaken)


def test_the_bytes_are_those_of_malloc() -> None:
    model = nn.Sequential(nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 1024))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    try:
        allocator: MemoryCounter = MallocAllocator()
    except (OSError, AttributeError):
        pytest.skip("this system's C library counts no bytes")
    x = torch.ones(3, 1024)
    # What other tests have left must not be freed meanwhile.
    gc.collect()
    with no_collection(), watched(allocator=allocator) as seen:
        for _ in seen.steps(10, {5: freeze("2")}):
            square_step(model, optimizer, x)
    (receipt,) = seen.all(ReceiptTaken)
    before, after = totals(receipt)
    assert before is not None
    assert after is not None
    gradients = 4 * (1024 * 1024 + 1024)
    # Python allocates too, and not in proportion to the layer.
    assert before - after == pytest.approx(gradients, abs=gradients / 20)


class Made:
    """Receipts of steps whose durations the test makes up, in rounds of `length` steps."""

    def __init__(self, length: int = 1) -> None:
        self.time, self.events = StepTime(), list[ReceiptTaken]()
        self.sampler = SimpleNamespace(step_time=self.time, memories=deque[StepMemory](maxlen=32))
        context = SimpleNamespace(
            emit=self.events.append, clock=SimpleNamespace(at=lambda: 0.0), models=SimpleNamespace(round_length=length)
        )
        self.receipts = Receipts(context, self.sampler)
        self.step = 0

    def run(
        self,
        seconds: Sequence[float],
        *,
        sampled: bool = False,
        activations: int | None = None,
        total: int = 1_000,
        apart: int | None = None,
        inputs: int | None = None,
    ) -> None:
        for each in seconds:
            self.step += 1
            self.time.add(each, is_sampled=sampled)
            if sampled:
                memory = StepMemory(self.step, None, total, activations, None, apart, inputs)
                self.sampler.memories.append(memory)
            self.receipts.poll(self.step)


def noisy(seconds: float, count: int, seed: int) -> list[float]:
    chance = random.Random(seed)
    return [seconds * (1 + chance.gauss(0, 0.02)) for _ in range(count)]


def test_longer_step_is_reported_once_in_second_receipt() -> None:
    made = Made()
    made.run([5.0, 5.0], sampled=True)
    made.run(noisy(0.1, 40, 1))
    made.receipts.begin(7, "froze a", made.step)
    # Samples take longer, and are left out.
    made.run([5.0, 5.0], sampled=True)
    made.run(noisy(0.15, 300, 2))
    memory, both = made.events
    assert (memory.step, memory.text) == (44, "froze a: memory as before")
    assert memory.effect.time is None
    assert both.text.startswith("froze a: step 1")
    assert both.effect.after == memory.effect.after
    change = both.effect.time
    assert (change.before, change.after) == (pytest.approx(0.1, rel=0.02), pytest.approx(0.15, rel=0.02))
    assert not made.receipts.open


def test_steps_that_verify_a_change_are_not_compared() -> None:
    for steps, said in ((6, None), (24, 0.13)):
        made = Made()
        made.run([5.0, 5.0], sampled=True)
        made.run(noisy(0.1, 40, 1))
        made.receipts.begin(7, "froze a", made.step)
        made.run([5.0, 5.0], sampled=True)
        made.run(noisy(0.2, VERIFY_STEPS - 2, 2))
        made.run(noisy(0.13, steps, 3))
        made.receipts.poll(made.step, is_over=True)
        found = [event.effect.time.after for event in made.events if event.effect.time is not None]
        assert found == ([] if said is None else [pytest.approx(said, rel=0.02)])


def test_unchanged_or_soon_replaced_time_is_not_told() -> None:
    for after, then in ((0.1, 300), (0.15, 10)):
        made = Made()
        made.run([0.1, 0.1], sampled=True)
        made.run(noisy(0.1, 40, 1))
        made.receipts.begin(7, "froze a", made.step)
        made.run([after, after], sampled=True)
        made.run(noisy(after, then, 2))
        made.receipts.begin(8, "unfroze a", made.step)
        assert [event.command for event in made.events] == [7]


def test_difference_between_batches_is_no_change() -> None:
    for after, text in ((500, "froze a: memory as before"), (99, "froze a: activations 400 → 99 B")):
        made = Made()
        # They vary by 300 bytes, so 100 to 900 could be the batch.
        for activations in (700, 600, 400):
            made.run([0.1], sampled=True, activations=activations)
        made.receipts.begin(7, "froze a", made.step)
        made.run([0.1, 0.1], sampled=True, activations=after)
        assert [event.text for event in made.events] == [text]


def test_allocation_over_hundreds_of_steps_is_no_change() -> None:
    before, kept = 24 << 20, 2_900
    for grown, said in ((190 << 10, ""), (300 << 10, "memory at the end of backward 24.0 → 24.3 MiB, ")):
        made = Made()
        made.run([0.1, 0.1], sampled=True, activations=kept, total=before)
        made.run(noisy(0.1, 300, 1))
        made.receipts.begin(7, "froze a", made.step)
        made.run(noisy(0.1, 5, 2))
        made.run([0.1, 0.1], sampled=True, activations=1_100, total=before + grown)
        assert made.events[0].text == f"froze a: {said}activations 2.8 → 1.1 KiB"


def test_what_others_allocate_meanwhile_is_no_effect() -> None:
    before, gradients = 24 << 20, 40 << 10
    for grown in (8 << 20, -(8 << 20)):
        made = Made()
        made.run([0.1, 0.1], sampled=True, activations=900, total=before, apart=before - (1 << 20))
        made.receipts.begin(7, "froze a", made.step)
        after = before + grown - gradients
        made.run([0.1, 0.1], sampled=True, activations=900, total=after, apart=before - (1 << 20) + grown)
        (receipt,) = made.events
        assert totals(receipt) == (before, before - gradients)
        assert "total" not in receipt.effect.within_noise


def test_batches_of_another_size_say_nothing_of_activations() -> None:
    for inputs, text in ((4_096, []), (256, ["froze a: activations 900 → 500 B"])):
        made = Made()
        made.run([0.1, 0.1], sampled=True, activations=900, inputs=256)
        made.run(noisy(0.1, 40, 1))
        made.receipts.begin(7, "froze a", made.step)
        made.run([0.1, 0.1], sampled=True, activations=500, inputs=inputs)
        assert [event.text for event in made.events] == text
        made.run(noisy(0.5, 60, 2))
        assert [event.effect.time is None for event in made.events] == [True] * len(text) + [False] * len(text)


def test_sampled_step_tells_what_no_command_changes() -> None:
    torch.manual_seed(0)
    model = nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    class WithMore(OwnCount):
        def read(self) -> Reading:
            return Reading((super().read().total or 0) + 777, None)

    x = torch.ones(3, WIDTH)
    with watched(allocator=WithMore(model, optimizer, peaks=False)) as seen:
        for _ in seen.steps(12, {5: [lambda number: SetGroup(number, 0, 0, learning_rate=0.5)]}):
            square_step(model, optimizer, x)
        memories = seen.probe.step_sampler.memories
        assert {(each.apart, each.inputs) for each in memories} == {(777, x.nbytes)}


def test_difference_of_batches_is_known_from_earlier() -> None:
    made = Made()
    for activations in (700, 400):
        made.run([0.1], sampled=True, activations=activations)
    made.receipts.begin(7, "froze a", made.step)
    made.run([0.1], sampled=True, activations=400)
    made.receipts.begin(8, "froze b", made.step)
    made.run([0.1, 0.1], sampled=True, activations=700)
    assert [event.text for event in made.events] == ["froze a: memory as before", "froze b: memory as before"]


def test_activations_await_known_difference_of_batches() -> None:
    for is_of_activations, texts in ((False, []), (True, ["checkpoints a: activations 700 → 400 B"])):
        made = Made()
        made.run([0.1], sampled=True, activations=700)
        made.receipts.begin(7, "checkpoints a", made.step, is_of_activations=is_of_activations)
        made.run([0.1, 0.1], sampled=True, activations=400)
        assert [event.text for event in made.events] == texts


def test_steps_of_a_round_are_added_up() -> None:
    made = Made(length=2)
    made.run([0.1] * 4, sampled=True)
    made.run([0.1, 0.3] * 30)
    made.receipts.begin(7, "froze a", made.step)
    made.run([0.1] * 4, sampled=True)
    made.run([0.1, 0.5] * 30)
    change = made.events[-1].effect and made.events[-1].effect.time
    assert (change.before, change.after) == (pytest.approx(0.4), pytest.approx(0.6))


@pytest.mark.parametrize("length", [5, 6, 8])
def test_change_of_duration_is_reported_in_few_rounds(length: int) -> None:
    made = Made(length)
    made.run([0.1] * 2 * length, sampled=True)
    made.run([0.1] * 40 * length)
    made.receipts.begin(7, "froze a", made.step)
    made.run([0.1] * 2 * length, sampled=True)
    made.run([0.2] * 40 * length)
    change = made.events[-1].effect and made.events[-1].effect.time
    assert (change.before, change.after) == (pytest.approx(0.1 * length), pytest.approx(0.2 * length))


def test_receipt_waits_for_bounded_number_of_steps() -> None:
    made = Made()
    made.run([0.1, 0.1], sampled=True)
    made.receipts.begin(7, "froze a", made.step)
    made.run([0.1] * 10)
    assert (made.events, made.receipts.open) == ([], [])
    made.receipts.begin(8, "froze b", made.step)
    made.run([0.1] * 250, sampled=True)
    assert [event.command for event in made.events] == [8]
    assert not made.receipts.open


def test_first_total_lacks_optimizer_state_for_comparison() -> None:
    for sampled, totals_compared in ((1, False), (2, True)):
        made = Made()
        made.run([0.1] * sampled, sampled=True)
        made.run([0.1] * 20)
        made.receipts.begin(7, "froze a", made.step, joined=(("Adam", 1),))
        made.run([0.1, 0.1], sampled=True)
        (event,) = made.events
        assert (event.effect.before.total is not None) is totals_compared
