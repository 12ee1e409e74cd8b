"""The parts of the host's time of a step."""

from __future__ import annotations

import io
from time import perf_counter

import pytest
import torch
from helpers.training import square_step
from helpers.watched import watched
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gradtui.probe.steps import BACKWARD, DATA, FORWARD, LOADER, STEP, ZERO_GRAD, PhaseTracker, replay
from gradtui.protocol.step_times import LoaderSettings, StepPart, StepTimesMeasured
from gradtui.protocol.vocabulary import Phase

MS = 1_000_000


def seconds(tracker: PhaseTracker) -> dict[str, float]:
    """The milliseconds of each part in all steps."""
    measured = tracker.times.measured(0.0, 0, None)
    return {each.part.value: round(1e3 * each.seconds, 6) for each in measured.parts if each.seconds}


class Loop:
    """A tracker that is told what happens, and the present millisecond."""

    def __init__(self) -> None:
        self.now = 0
        self.tracker = PhaseTracker(0)

    def after(self, milliseconds: int) -> int:
        self.now += milliseconds * MS
        return self.now

    def batch(self, milliseconds: int) -> None:
        self.tracker.data_began(self.after(0))
        self.tracker.data_ended(self.after(milliseconds))

    def evaluate(self, batches: int) -> None:
        for _ in range(batches):
            self.batch(2)
            self.tracker.interrupt(Phase.EVAL, self.after(1))
            self.tracker.resume(self.after(10))
        self.tracker.data_began(self.after(4))
        self.tracker.data_ended(self.after(0))

    def learn(self) -> None:
        tracker = self.tracker
        tracker.forward_began(self.after(3))
        tracker.on_backward_pre(self.after(5))
        tracker.on_backward_post(self.after(7), in_step=False)
        tracker.interrupt(Phase.ZERO_GRAD, self.after(0))
        tracker.resume(self.after(1))
        tracker.on_step_pre(self.after(2))
        tracker.on_step_post(self.after(6))

    def step(self) -> None:
        self.batch(20)
        self.learn()


A_STEP = {"wait": 20, "prepare": 3, "forward": 5, "backward": 7, "optimizer": 7, "other": 2}


def test_parts_add_up_without_first_step() -> None:
    loop = Loop()
    for _ in range(4):
        loop.step()
    assert seconds(loop.tracker) == {part: 3 * spent for part, spent in A_STEP.items()}
    measured = loop.tracker.times.measured(0.0, 4, None)
    # What follows a sampled step is not usual either, and the first step may have been one.
    assert (measured.steps, measured.unsampled_steps) == (3, 3)


def test_evaluation_has_batches_and_work_between() -> None:
    loop = Loop()
    loop.step()
    loop.after(9)
    loop.evaluate(3)
    loop.after(6)
    loop.batch(20)
    loop.learn()
    assert seconds(loop.tracker) == A_STEP | {"evaluation": 9 + 3 * (2 + 1 + 10) + 4 + 6}
    assert loop.tracker.times.measured(0.0, 2, None).steps_with_evaluation == 1


def test_forward_without_gradients_takes_no_batch() -> None:
    loop = Loop()
    loop.step()
    loop.batch(20)
    loop.tracker.interrupt(Phase.EVAL, loop.after(1))
    loop.tracker.resume(loop.after(10))
    loop.learn()
    assert seconds(loop.tracker) == A_STEP | {"evaluation": 10, "prepare": 4}


def test_mistaken_evaluation_leaves_batch_to_training() -> None:
    loop = Loop()
    loop.step()
    tracker = loop.tracker
    for _ in range(2):
        loop.batch(20)
        tracker.interrupt(Phase.EVAL, loop.after(1))
        tracker.resume(loop.after(10))
        tracker.evaluation_was_training(10 * MS)
        tracker.on_backward_pre(loop.after(0))
        tracker.on_backward_post(loop.after(7), in_step=False)
    tracker.on_step_pre(loop.after(0))
    tracker.on_step_post(loop.after(6))
    assert seconds(tracker) == {"wait": 40, "prepare": 2, "forward": 20, "backward": 14, "optimizer": 6}


def test_start_of_workers_is_waiting() -> None:
    loop = Loop()
    loop.step()
    for evaluates in (False, True):
        if evaluates:
            loop.batch(0)
            loop.tracker.loader_began(loop.after(2))
            loop.tracker.loader_ended(loop.after(40))
            loop.evaluate(2)
        else:
            loop.batch(0)
        loop.tracker.loader_began(loop.after(50))
        loop.tracker.loader_ended(loop.after(30))
        loop.step()
    # What lies between the end of an evaluation and the next training belongs to it, and so do its workers.
    evaluation = 40 + 2 * (2 + 1 + 10) + 4 + 50
    expected = {part: 2 * spent for part, spent in A_STEP.items()} | {"evaluation": evaluation}
    assert seconds(loop.tracker) == expected | {"wait": 2 * (30 + 20), "other": 2 * 2 + 50 + 2}


def test_loader_within_a_data_set_goes_on_waiting() -> None:
    loop = Loop()
    loop.step()
    loop.tracker.data_began(loop.after(0))
    loop.tracker.loader_began(loop.after(5))
    loop.tracker.loader_ended(loop.after(5))
    loop.tracker.data_ended(loop.after(10))
    loop.learn()
    assert seconds(loop.tracker) == A_STEP


def test_each_epoch_begins_its_loader_once() -> None:
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(16, 64)), batch_size=8)
    with watched() as seen:
        for _ in range(40):
            end = perf_counter()
            while perf_counter() < end + 0.002:
                pass
            for (x,) in loader:
                square_step(model, optimizer, x)
    parts = {each.part: each.seconds for each in seen.all(StepTimesMeasured)[-1].parts}
    assert parts[StepPart.OTHER] >= 39 * 0.002 > parts[StepPart.PREPARE]


@pytest.mark.parametrize(("count", "median", "p95"), [(20, 0.010, 0.019), (21, 0.011, 0.020), (1, 0.001, 0.001)])
def test_quantiles_are_values_of_the_nearest_rank(count: int, median: float, p95: float) -> None:
    loop = Loop()
    loop.step()
    for milliseconds in range(count, 0, -1):
        loop.tracker.on_step_pre(loop.now)
        loop.tracker.on_step_post(loop.after(milliseconds))
    optimizer = loop.tracker.times.measured(0.0, 0, None).parts[4]
    assert (optimizer.part, optimizer.median, optimizer.p95) == (StepPart.OPTIMIZER, median, p95)


def test_optimizers_that_take_turns_compare_rounds() -> None:
    loop = Loop()
    for step in range(1 + 80):
        # A generator and a discriminator; both become slower.
        slower = 2 if step > 60 else 1
        loop.batch(slower * (1 if step % 2 else 99))
        loop.learn()
    times = loop.tracker.times
    rest = sum(A_STEP.values()) - A_STEP["wait"]
    by_rounds = times.measured(0.0, 81, None, round_length=2)
    assert (by_rounds.early_step, by_rounds.late_step) == ((50 + rest) / 1e3, (100 + rest) / 1e3)
    waits = next(each for each in by_rounds.parts if each.part is StepPart.WAIT)
    assert (waits.median, waits.early_median, waits.late_median) == (0.05, 0.05, 0.1)
    assert times.measured(0.0, 81, None).early_step == (1 + rest) / 1e3


def test_time_of_hooks_is_in_no_part() -> None:
    loop, own = Loop(), dict[int, int]()
    loop.tracker = PhaseTracker(0, lambda now: sum(took for when, took in own.items() if when <= now))
    loop.step()
    # What follows the first step is setup, and belongs to it.
    own[loop.after(4)] = 4 * MS
    loop.step()
    assert seconds(loop.tracker) == A_STEP
    # Four milliseconds after the step, and two as the forward begins.
    own.update({loop.after(4): 4 * MS, loop.now + 23 * MS: 2 * MS})
    loop.step()
    assert seconds(loop.tracker) == {part: 2 * spent for part, spent in A_STEP.items()} | {"prepare": 4, "gradtui": 6}


def test_a_pause_is_left_out() -> None:
    loop = Loop()
    loop.step()
    loop.tracker.pause_began(loop.after(1))
    loop.tracker.pause_ended(loop.after(10_000))
    loop.step()
    assert seconds(loop.tracker) == A_STEP | {"other": 3}


def test_replayed_steps_have_times_of_followed() -> None:
    events = ((LOADER, 1), (-LOADER, 2), (DATA, 4), (-DATA, 20), (FORWARD, 3), (BACKWARD, 5), (-BACKWARD, 7),
              (ZERO_GRAD, 1), (-ZERO_GRAD, 2), (STEP, 1), (-STEP, 6))  # fmt: skip
    marks, now = [], 0
    for step in range(50):
        for kind, took in events:
            now += took * MS * (1 + step % 3)
            marks += [kind, now]
    together, one_by_one = PhaseTracker(0), PhaseTracker(0)
    assert replay(marks, together) == [when for kind, when in zip(marks[::2], marks[1::2]) if kind == -STEP]
    for at in range(0, len(marks), 2):
        replay(marks[at : at + 2], one_by_one)
    assert seconds(together) == seconds(one_by_one)
    both = [each.times.measured(0.0, 50, None) for each in (together, one_by_one)]
    assert both[0].steps == both[1].steps == 49
    # Of every other step: the start of the loader, and the batch.
    assert both[0].parts[0].median == pytest.approx(2 * (0.002 + 0.020))
    assert [each.median for each in both[0].parts] == [each.median for each in both[1].parts]


def test_parts_add_up_to_time_of_loop() -> None:
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(320, 64)), batch_size=8)
    ends: list[float] = []
    with watched() as seen:
        for _ in range(3):
            for (x,) in loader:
                square_step(model, optimizer, x)
                ends.append(perf_counter())
            torch.save(model.state_dict(), io.BytesIO())
            with torch.no_grad():
                model.eval()(torch.randn(2_000, 64))
            model.train()
    measured = seen.all(StepTimesMeasured)[-1]
    assert measured.steps == len(ends) - 1 == 119
    assert measured.loader == LoaderSettings(0, 8)
    parts = {each.part: each.seconds for each in measured.parts}
    # The save and the evaluation after the last step count, and the loop's own clock stops before them.
    assert sum(parts.values()) == pytest.approx(ends[-1] - ends[0], rel=0.02, abs=0.02)
    assert parts[StepPart.SAVING] > 0
    assert parts[StepPart.EVALUATION] > 0


def test_step_without_optimizer_lasts_between_backwards() -> None:
    model, ends = nn.Linear(64, 64), list[float]()
    with watched() as seen:
        for _ in range(40):
            model(torch.randn(8, 64)).square().mean().backward()
            ends.append(perf_counter())
            with torch.no_grad():
                for each in model.parameters():
                    each -= 0.01 * each.grad
            model.zero_grad()
    measured = seen.all(StepTimesMeasured)[-1]
    # The next forward ends a step, so the last one has none.
    assert measured.steps == 38
    assert sum(each.seconds for each in measured.parts) == pytest.approx(ends[-2] - ends[0], rel=0.02, abs=0.005)


def test_micro_steps_before_first_step_are_parts() -> None:
    model = nn.Linear(64, 64)
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(40):
            model(torch.randn(8, 64)).square().mean().backward()
            if step % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
    assert seen.all(StepTimesMeasured)[-1].steps == 9


def test_validation_is_told_from_teacher_forward() -> None:
    found = []
    for validates in (True, False):
        model, teacher = nn.Linear(64, 64), nn.Linear(64, 64).eval()
        evaluated = model if validates else teacher
        with watched() as seen:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            for _ in range(12):
                model.train()
                square_step(model, optimizer, torch.randn(8, 64))
                with torch.no_grad():
                    evaluated.eval()(torch.randn(8, 64))
        found.append(seen.all(StepTimesMeasured)[-1])
    # What follows the last step is no part of one.
    assert [each.steps_with_evaluation for each in found] == [11, 11]
    assert [each.steps_with_validation for each in found] == [11, 0]
