"""GT701 to GT710: what the loop spends its time on, besides learning."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scripted_run import match, matches, run
from timed_steps import times

from gradtui.protocol import events as ev
from gradtui.protocol.step_times import PartTime, StepPart, StepTimesMeasured
from gradtui.protocol.vocabulary import GroupSettings
from gradtui.run.diagnostics.selection import rule_named
from gradtui.run.reducer import apply
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState


def timed(measured: StepTimesMeasured) -> RunState:
    state = run()
    apply(state, measured)
    return state


def test_a_loop_that_waits_for_samples_that_the_main_process_loads() -> None:
    one = match("GT701", timed(times(wait=58, forward=3, backward=5.7)))
    assert one.message == (
        "87 % of the loop (5.8 s of 6.7 s) is spent waiting for the DataLoader (num_workers=0): a batch takes 58.0 ms, "
        "so one of its 16 samples about 3.63 ms"
    )
    assert one.evidence["seconds_a_step"] == pytest.approx(0.058)
    assert one.is_exact


def test_seconds_of_an_epoch_where_its_length_is_known() -> None:
    state = timed(times(wait=58, backward=10))
    state.epoch_steps = 1_000
    assert match("GT701", state).evidence["seconds_an_epoch"] == pytest.approx(58.0)


def test_workers_of_which_some_batches_come_late() -> None:
    measured = times(wait=50, backward=20, workers=2)
    wait, *others = measured.parts
    late = replace(measured, parts=(replace(wait, median=0.0001, p95=0.4), *others))
    one = match("GT701", timed(late))
    assert "most batches come within 100 µs, and some take 400 ms or more" in one.message
    assert one.remedy is not None
    assert "more than the 2 workers" in one.remedy
    assert "persistent_workers=True" in one.remedy


def test_a_few_long_waits_are_no_usual_batch() -> None:
    measured = times(wait=26, backward=1)
    wait, *others = measured.parts
    one = match("GT701", timed(replace(measured, parts=(replace(wait, median=0.0002, p95=0.0003), *others))))
    assert one.message.endswith("most batches come within 300 µs, and a few take far longer")


def test_a_step_of_several_batches_does_not_say_what_one_takes() -> None:
    state = timed(times(wait=58, backward=10))
    state.step, state.micro_steps = 100, 400
    assert match("GT701", state).message.endswith("(num_workers=0): the batches of a step take 58.0 ms")


@pytest.mark.parametrize(
    ("rule", "measured"),
    [
        ("GT704", times(evaluation=45, with_evaluation=3, backward=55)),
        ("GT704", replace(times(evaluation=45, with_evaluation=100, backward=55), steps_with_validation=100)),
        ("GT705", times(saving=25, backward=75)),
        ("GT706", times(optimizer=60, backward=40)),
        ("GT710", times(other=60, backward=40)),
        ("GT710", times(prepare=60, backward=40)),
    ],
)
def test_a_part_that_takes_much(rule: str, measured: StepTimesMeasured) -> None:
    assert match(rule, timed(measured)).evidence["loop_seconds"] == pytest.approx(10.0)


RULES = ("GT701", "GT704", "GT705", "GT706", "GT707", "GT710")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "measured",
    [
        times(wait=30, prepare=5, forward=20, backward=30, optimizer=10, other=5),
        # A toy: what its parts cost at least is most of its steps.
        times(steps=5_000, unsampled=5_000, wait=0.4, forward=0.1, backward=0.2),
        times(steps=5_000, unsampled=5_000, optimizer=0.4, forward=0.1, backward=0.2),
        times(steps=15, unsampled=12, wait=50, backward=5),
        # The forward of a teacher.
        times(evaluation=45, with_evaluation=100, backward=55),
    ],
)
def test_a_loop_in_which_nothing_stands_out(rule: str, measured: StepTimesMeasured) -> None:
    assert matches(rule, timed(measured)) == []


def test_without_steps_no_rule_had_a_chance() -> None:
    assert {rule_named(rule).needs(run()) for rule in RULES} == {"fewer than ten steps were timed"}


def grown(part: StepPart, by: float, *, others: float = 1.0) -> StepTimesMeasured:
    """Steps of ten milliseconds, in which one part is longer by a factor at the end, and the others by another."""
    measured = times(forward=3, backward=3, other=4)

    def at_end(each: PartTime) -> PartTime:
        assert each.early_median is not None
        return replace(each, late_median=each.early_median * (by if each.part is part else others))

    return replace(measured, parts=tuple(map(at_end, measured.parts)))


def test_own_code_that_grows() -> None:
    one = match("GT707", timed(grown(StepPart.OTHER, 10.0)))
    assert one.message == (
        "a step took 10.0 ms at first and takes 46.0 ms now: own code has grown from 4.00 ms to 40.0 ms"
    )
    assert one.level is None


def test_a_forward_that_grows_is_a_note() -> None:
    assert match("GT707", timed(grown(StepPart.FORWARD, 10.0))).level is Level.NOTE


def test_forward_and_backward_grow_together() -> None:
    measured = grown(StepPart.FORWARD, 3.0)
    both = tuple(
        replace(each, late_median=3.0 * (each.early_median or 0.0)) if each.part is StepPart.BACKWARD else each
        for each in measured.parts
    )
    one = match("GT707", timed(replace(measured, parts=both)))
    assert one.message.endswith("22.0 ms now: forward and backward have grown from 6.00 ms to 18.0 ms")


@pytest.mark.parametrize(
    "measured", [grown(StepPart.OTHER, 3.0, others=3.0), grown(StepPart.OTHER, 1.3), grown(StepPart.OTHER, 0.1)]
)
def test_a_machine_that_becomes_slower_or_a_part_that_hardly_grows(measured: StepTimesMeasured) -> None:
    assert matches("GT707", timed(measured)) == []


def test_an_optimizer_that_was_told_to_be_slow_is_a_warning() -> None:
    state = timed(times(optimizer=60, backward=40))
    assert match("GT706", state).level is Level.NOTE
    slow = GroupSettings(0.01, 0.0, (("foreach", False),))
    apply(state, ev.GroupsRead(0.1, 1, ((slow,),)))
    assert match("GT706", state).level is None
    assert "with foreach=False" in match("GT706", state).message
    apply(state, ev.GroupsRead(0.1, 1, ((replace(slow, further=(("foreach", False), ("fused", True))),),)))
    assert match("GT706", state).level is Level.NOTE
