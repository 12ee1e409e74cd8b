"""Which estimate of the time left is shown."""

from __future__ import annotations

import dataclasses

import pytest
from helpers.fakes import started

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import Phase
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.run.state.time.time_left import TimeLeft, time_left
from gradtui.run.text import time_left_text
from gradtui.transport.progress_bars import ProgressBar


def state(steps: int | None = None, left: int | None = None, rate: float | None = 2.0) -> RunState:
    made = RunState()
    made.epoch_steps, made.epoch_steps_left, made.steps_per_second = steps, left, rate
    return made


def bar(seconds: float, name: str = "", total: float = 45) -> ProgressBar:
    return ProgressBar(name, total, seconds)


def test_nothing_is_shown_that_is_not_known() -> None:
    assert time_left(state()) is None
    assert time_left(state(100, 30, rate=None)) is None
    assert time_left(state(100, None)) is None


def test_the_steps_of_the_epoch_and_their_rate() -> None:
    assert time_left(state(100, 30)) == TimeLeft(15.0, is_of_epoch=True)
    assert time_left(state(100, 0)) == TimeLeft(0.0, is_of_epoch=True)


def test_bar_over_run_comes_before_epoch() -> None:
    assert time_left(state(100, 30), [bar(130)]) == TimeLeft(130)
    assert time_left(state(100, 30), [bar(130), bar(5, total=100)]) == TimeLeft(130)
    assert time_left(state(), [bar(130)]) == TimeLeft(130)


@pytest.mark.parametrize("of_epoch", [bar(2, "epoch 22/45"), bar(2, "Epoch [3"), bar(2, total=100)])
def test_bar_over_epoch_is_not_that_of_run(of_epoch: ProgressBar) -> None:
    assert time_left(state(100, 30), [of_epoch]) == TimeLeft(15.0, is_of_epoch=True)
    assert time_left(state(100, None), [of_epoch]) == TimeLeft(2, is_of_epoch=True)


def test_length_of_run_comes_before_epoch() -> None:
    made = state(100, 30)
    made.step, made.throughput.length = 40, ev.RunLengthFound(1.0, 40, 240, "range(240)")
    assert time_left(made) == TimeLeft(100.0)
    assert time_left(made, [bar(130)]) == TimeLeft(130)
    made.throughput.length = ev.RunLengthFound(1.0, 40, None)
    assert time_left(made) == TimeLeft(15.0, is_of_epoch=True)


def test_run_going_on_longer_than_planned() -> None:
    made = state(100, 30)
    made.step, made.throughput.length = 240, ev.RunLengthFound(1.0, 40, 240, "CosineAnnealingLR")
    assert time_left(made) == TimeLeft(15.0, is_of_epoch=True)


def test_short_epochs_do_not_blink() -> None:
    assert time_left(state(19, 10)) is None
    assert time_left(state(20, 10)) == TimeLeft(5.0, is_of_epoch=True)
    assert time_left(state(), [ProgressBar("epoch 22/45", 10, 2, 3)]) is None
    assert time_left(state(), [ProgressBar("epoch 22/45", 10, 2, 30)]) == TimeLeft(2, is_of_epoch=True)


def test_bar_over_all_epochs_is_that_of_run() -> None:
    assert time_left(state(), [bar(9, "Epochs")]) == TimeLeft(9)


def test_the_bar_of_an_evaluation_says_nothing() -> None:
    assert time_left(state(), [bar(9, "Validation")]) is None
    assert time_left(state(), [bar(130), bar(9, "val")]) == TimeLeft(130)
    evaluating = state()
    evaluating.phase = Phase.EVAL
    assert time_left(evaluating, [bar(9)]) is None
    assert time_left(evaluating, [bar(130), bar(9)]) == TimeLeft(130)


def test_run_that_is_over_has_no_time_left() -> None:
    over = state(100, 30)
    apply(over, ev.RunEnded(9.0, 70, 0, None))
    assert time_left(over, [bar(3)]) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (0.4, "0 s"), (12.4, "12 s"), (59.6, "1m 00s"), (185, "3m 05s"), (599.4, "9m 59s"), (600, "10 min"),
        (3569, "59 min"), (3599, "1h 00m"), (3720, "1h 02m"), (35_999, "10 h"), (50_400, "14 h"), (86_399, "1d 00h"),
        (4 * 86_400 + 7 * 3600, "4d 07h"), (50 * 86_400, "50 d"), (1e9, ">999 d"),
    ],
)  # fmt: skip
def test_the_time_left_in_six_cells(seconds: float, text: str) -> None:
    assert time_left_text(seconds) == text
    assert len(text) <= 6


def test_progress_brings_and_takes_epoch_steps() -> None:
    run = RunState()
    apply(run, ev.Progress(1.0, 5, 5, 5, 0, (5,), (), 0.0, 1, 1, epoch_steps=10, epoch_steps_left=5))
    assert (run.epoch_steps, run.epoch_steps_left) == (10, 5)
    apply(run, ev.Progress(2.0, 10, 5, 5, 0, (5,), (), 0.0, 1, 1))
    assert (run.epoch_steps, run.epoch_steps_left) == (None, None)


def test_steps_after_which_run_is_stopped_come_first() -> None:
    known = state(steps=100, left=40)
    known.started = dataclasses.replace(started(), stop_after=500)
    known.step = 300
    assert time_left(known, [bar(45.0)]) == TimeLeft(100.0), "200 steps at 2 steps a second"
    known.step = 501
    assert time_left(known) == TimeLeft(0.0)
