"""Which values are old: those from before the newest change, and those from more than two seconds of training ago."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.events import gradient_stats
from helpers.fakes import Node, found
from helpers.jobs import Job
from helpers.states import state_after

from gradtui.protocol import events as ev
from gradtui.protocol.commands import Command, Pause, SetGroup, SetTrainable
from gradtui.protocol.vocabulary import Phase
from gradtui.run.reducer import apply
from gradtui.run.state.freshness import (
    SECONDS,
    is_stale,
    oldest_fresh_step,
    ratio_steps,
    stale_norm_step,
    stale_ratio_steps,
)
from gradtui.run.state.run_state import RunState

MODEL = found(Node("Net", "Net", (("a", (2,)), ("b", (2,)), ("c", (2,)))))
EVERY = range(3)


def state_of(*events: ev.Event) -> RunState:
    return state_after(MODEL, *events)


def progress(step: int, rate: float, steps: int = 1) -> ev.Progress:
    times = (ev.PhaseTime(Phase.FORWARD, steps / rate, steps),)
    return ev.Progress(float(step), step, steps, steps, 0, (steps,), times, 0.0, 1, 1)


def norms(
    step: int, *values: float | None, steps: tuple[int | None, ...] | None = None, loss: float | None = None
) -> ev.GradientsMeasured:
    return ev.GradientsMeasured(float(step), step, 1.0, loss, values or None, norm_steps=steps)


def classified(step: int, states: str, trainable: str) -> ev.ParametersClassified:
    return ev.ParametersClassified(float(step), step, states, trainable)


def applied(step: int, command: Command) -> ev.CommandApplied:
    return ev.CommandApplied(float(step), step, command, "done", ())


def figures(step: int, *parameters: int, ratio: float | None = 1e-3) -> ev.GradientFiguresMeasured:
    each = (gradient_stats(index, ratio) for index in parameters)
    return ev.GradientFiguresMeasured(float(step), step, tuple(each))


@pytest.mark.parametrize(
    ("rate", "now"), [(10.0, 100), (5.0, 333), (24.1, 120), (1000.0, 50_000), (0.4, 9), (0.6, 9), (1.0, 9), (0.01, 3)]
)
def test_values_of_last_two_seconds_are_fresh(rate: float, now: int) -> None:
    state = state_of(progress(now, rate))
    for step in range(max(0, now - 5000), now + 1):
        is_recent = step > now - SECONDS * rate or step >= now - 1
        assert is_stale(state, step) is not is_recent, step


def test_step_that_counter_has_not_reached_is_fresh() -> None:
    assert not is_stale(state_of(progress(100, 10.0)), 104)


def test_unknown_rate_or_unknown_step_makes_nothing_old() -> None:
    state = state_of(norms(1, 1.0, 1.0, 1.0))
    state.step = 1000
    assert not is_stale(state, 0)
    apply(state, progress(1000, 10.0))
    assert is_stale(state, 1)
    assert not is_stale(state, None)


def test_what_was_measured_before_newest_change_is_old() -> None:
    state = state_of(progress(7, 1000.0), applied(7, SetGroup(1, 0, 0, 1e-3)))
    assert (is_stale(state, 7), is_stale(state, 8)) == (True, False)
    apply(state, applied(9, SetTrainable(2, "a", False)))
    assert (oldest_fresh_step(state), is_stale(state, 9), is_stale(state, 10)) == (10, True, False)


def test_pause_is_no_change_of_age() -> None:
    state = state_of(progress(100, 10.0), applied(100, Pause(1)), ev.PauseChanged(50.0, 100, True))
    before = oldest_fresh_step(state)
    apply(state, ev.DeviceSampled(500.0, 100, "host", *[None] * 8))
    assert oldest_fresh_step(state) == before == 81


def test_end_ages_no_last_value() -> None:
    # The last steps were not measured.
    state = state_of(progress(100, 10.0), norms(90, 1.0, 1.0, 1.0, loss=0.5))
    apply(state, progress(119, 10.0, 19))
    assert is_stale(state, 90)
    apply(state, ev.RunEnded(12.0, 120, 0, None))
    assert not is_stale(state, 90), "it is the newest there will ever be"
    assert (is_stale(state, 70), is_stale(state, 71)) == (True, False)


def test_run_without_measurement_has_last_step() -> None:
    assert oldest_fresh_step(state_of(progress(100, 10.0), ev.RunEnded(12.0, 100, 0, None))) == 81


def test_freeze_by_command_ages_values_and_norms() -> None:
    state = state_of(classified(3, "TTT", "111"), norms(7, 1.0, 2.0, 3.0), progress(7, 1.0))
    assert state.tree.norms == (1.0, 2.0, 3.0)
    # The states of what was toggled are unknown until the next sampled step.
    apply(state, classified(7, "T-T", "101"))
    assert state.tree.norms == (1.0, None, 3.0)
    assert (is_stale(state, 7), is_stale(state, 8)) == (True, False)
    # The probe still has the norm of the last step that applied it.
    apply(state, norms(8, 1.1, 2.0, 3.1, steps=(8, 7, 8)))
    assert (state.tree.norms, state.tree.norm_steps) == ((1.1, None, 3.1), (8, None, 8))
    assert state.history.rows[-1] == (1.1, None, 3.1)


def test_freeze_takes_norms_that_ranks_have_combined() -> None:
    job = Job()
    job.event(0, replace(classified(3, "TT", "11"), listing=1))
    job.job.whole.take(7, (1.0, 2.0))
    job.event(0, replace(classified(7, "T-", "10"), listing=1))
    assert job.job.whole.norms == (1.0, None)


def test_freeze_by_script_is_found_in_sample() -> None:
    state = state_of(classified(3, "TTT", "111"), norms(11, 1.0, 2.0, 3.0))
    apply(state, classified(12, "TFT", "101"))
    assert (state.tree.norms, state.changed_after) == ((1.0, None, 3.0), 11)
    apply(state, norms(12, 1.0, 0.5, 3.0))
    assert state.tree.norms == (1.0, 0.5, 3.0), "a frozen parameter whose gradient was applied"


def test_unfreeze_is_change_and_its_norms_come_back() -> None:
    state = state_of(classified(3, "TFT", "111"), classified(4, "TF-", "110"), norms(5, 1.0, None, None))
    apply(state, classified(6, "TF-", "111"))
    assert state.changed_after == 6
    apply(state, norms(7, 1.0, None, 3.0))
    assert state.tree.norms == (1.0, None, 3.0)


def test_what_is_known_first_is_no_change() -> None:
    assert state_of(classified(3, "TFC", "100")).changed_after == -1


def test_parameters_that_take_turns_change_nothing() -> None:
    """As in a GAN whose script freezes the discriminator in each step of the generator."""
    state = state_of(classified(1, "TTT", "111"))
    for step in range(2, 40, 2):
        apply(state, classified(step, "FTT", "011"))
        apply(state, classified(step + 1, "TTT", "111"))
    before = state.changed_after
    apply(state, classified(41, "FTT", "011"))
    assert state.changed_after == before < 10
    apply(state, norms(41, 1.0, 2.0, 3.0, steps=(39, 41, 41)))
    assert state.tree.norms == (1.0, 2.0, 3.0), "the norm of its own turn"


def test_new_models_keep_time_of_freeze() -> None:
    state = state_of(classified(3, "TTT", "111"), norms(7, 1.0, 2.0, 3.0), classified(7, "T-T", "101"))
    moved = found(Node("Net", "Net", (("b", (2,)), ("c", (2,)), ("d", (2,)))), step=8)
    former = ev.ModelsFound(8.0, 8, moved.models, moved.modules, moved.parameters, former_parameters=(1, 2, -1))
    apply(state, former)
    assert state.tree.frozen_after == {0: 7}
    apply(state, norms(9, 2.0, 3.0, 4.0, steps=(7, 9, 9)))
    assert state.tree.norms == (None, 3.0, 4.0)


def test_other_models_are_a_change() -> None:
    state = state_of(classified(3, "TTT", "111"), norms(7, 1.0, 2.0, 3.0), progress(8, 100.0))
    assert not is_stale(state, 7)
    other = found(Node("Other", "Other", (("w", (2,)),)), step=8)
    apply(state, replace(other, models=(replace(other.models[0], number=1),)))
    assert (is_stale(state, 8), is_stale(state, 9)) == (True, False)


def test_row_norm_is_as_old_as_oldest() -> None:
    state = state_of(classified(3, "TTT", "111"), progress(100, 10.0), norms(100, 1.0, 2.0, 3.0, steps=(100, 60, 95)))
    assert [stale_norm_step(state, range(index, index + 1)) for index in EVERY] == [None, 60, None]
    assert stale_norm_step(state, EVERY) == 60
    assert stale_norm_step(state, range(0)) is None


def test_row_ratio_is_as_old_as_oldest_trained() -> None:
    state = state_of(classified(3, "TTT", "111"), figures(40, 0, 1), figures(44, 1), figures(30, 2, ratio=None))
    assert [ratio_steps(state.tree, range(index, index + 1)) for index in EVERY] == [(40, 40), (44, 44), None]
    assert ratio_steps(state.tree, EVERY) == (40, 44)
    apply(state, progress(50, 5.0))
    assert stale_ratio_steps(state, EVERY) == (40, 44)
    apply(state, classified(44, "-TT", "011"))
    assert ratio_steps(state.tree, EVERY) == (44, 44), "a ratio of what is frozen is not shown"
    assert stale_ratio_steps(state, range(1, 2)) == (44, 44), "it is from before the freeze"
