"""Shares of the training loop, and the sentence about them."""

from __future__ import annotations

import pytest
from helpers.timed_steps import times

from gradtui.protocol.step_times import StepPart, StepTimesMeasured
from gradtui.records.export.times import step_time
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.run.state.time.step_shares import step_shares
from gradtui.run.text.step_times import time_lines, time_verdict


def run_with(measured: StepTimesMeasured) -> RunState:
    state = RunState()
    apply(state, measured)
    return state


def test_shares_add_up_without_time_of_samples() -> None:
    shares = step_shares(times(sampling=500, wait=30, forward=20, backward=40, other=10))
    assert shares is not None
    assert {each.part.value: round(each.share, 9) for each in shares.parts} == {
        "wait": 0.3, "forward": 0.2, "backward": 0.4, "other": 0.1,
    }  # fmt: skip
    assert shares.seconds == pytest.approx(10.0)


def test_usual_forward_without_gradients_is_training() -> None:
    shares = step_shares(times(with_evaluation=100, evaluation=60, forward=20, backward=20))
    assert shares is not None
    assert [each.part for each in shares.parts] == [StepPart.FORWARD, StepPart.BACKWARD]
    assert shares.of(StepPart.FORWARD) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (
            times(wait=87, forward=5, backward=8),
            "input-bound: 87 % of the loop waits for the DataLoader (num_workers=0)",
        ),
        (times(wait=87, workers=None, backward=13), "input-bound: 87 % of the loop waits for the DataLoader"),
        (times(forward=30, backward=60, other=10), "compute-bound: forward and backward take 90 % of the loop"),
        (times(optimizer=50, backward=50), "optimizer-bound: 50 % of the loop is optimizer steps"),
        (times(evaluation=45, with_evaluation=2, backward=55), "evaluation takes 45 % of the loop"),
        (times(saving=25, wait=45, backward=30), "saving takes 25 % of the loop"),
        (times(wait=30, forward=30, backward=30, other=10), ""),
        (times(steps=9, unsampled=9, wait=100), ""),
        (times(unsampled=0, other=90, backward=10), ""),
        (
            times(unsampled=0, wait=90, backward=10),
            "input-bound: 90 % of the loop waits for the DataLoader (num_workers=0)",
        ),
    ],
)
def test_the_verdict(measured: StepTimesMeasured, expected: str) -> None:
    assert time_verdict(run_with(measured)) == expected


def test_the_lines_have_every_part() -> None:
    lines = time_lines(step_time(run_with(times(wait=58, forward=2, backward=6.6))))
    assert lines[0] == "the loop took 6.7 s in 100 steps after the first, and gradtui 0.0 s"
    assert lines[1] == "data wait          87 %     5.8 s  median 58.0 ms, 95 % within 58.0 ms a step"
    assert len(lines) == 4
