"""What each event changes in the picture."""

from __future__ import annotations

import dataclasses
import math

import pytest
from helpers.events import gradient_stats, progress
from helpers.fakes import Node, coop_model, coop_run, coop_states, device_sample, found, held, started
from helpers.states import state_after

from gradtui.protocol import events as ev
from gradtui.protocol.commands import Pause, PauseAtBadStep, Resume, RunSteps, SetTrainable, StopTraining, Watch
from gradtui.protocol.driver import NvmlTrouble, NvmlTroubleKind
from gradtui.protocol.measurements import BINS, GradientHistogram
from gradtui.protocol.vocabulary import OptimizerInfo, Phase
from gradtui.run.reducer import apply
from gradtui.run.reducer.measured import HISTOGRAMS_KEPT
from gradtui.run.reducer.reducer import _CHANGES
from gradtui.run.reducer.results import INTERVENTIONS_KEPT
from gradtui.run.state.run_state import LOG_LENGTH, Problem, RunState
from gradtui.run.text.bad_steps import nonfinite_text
from gradtui.run.text.driver import nvml_trouble_text

MLP = Node("Mlp", "Mlp", (), (Node("fc", "Linear", (("weight", (4, 2)), ("bias", (4,)))),))


def test_every_event_has_its_change() -> None:
    kinds = {kind for kind in vars(ev).values() if isinstance(kind, type) and issubclass(kind, ev.Event)}
    assert set(_CHANGES) == kinds - {ev.Event, ev.Measurement}


def test_version_and_time_grow_with_whatever_comes() -> None:
    state = state_after(ev.PauseChanged(2.0, 5, False), ev.PauseChanged(1.0, 4, False))
    assert (state.version, state.seconds) == (2, 2.0)


def test_steps_and_micro_steps_are_of_one_moment() -> None:
    state = state_after(progress(2, 2), ev.DeviceSampled(3.0, 5, "host", *[None] * 8))
    assert (state.step, state.micro_steps) == (2, 2), "the micro-steps of step 5 are not known yet"
    apply(state, progress(5, 3))
    assert (state.step, state.micro_steps) == (5, 5)
    apply(state, ev.RunEnded(4.0, 5, 0, None))
    assert state.step == 5


def test_step_counts_when_done_not_read() -> None:
    state = state_after(progress(1), ev.GradientsMeasured(1.5, 2, 1.0, 0.5, None))
    assert state.step == 1
    apply(state, progress(2))
    assert state.step == 2


def test_new_tree_replaces_everything_aligned_with_old() -> None:
    state = state_after(
        found(MLP),
        ev.GradientsMeasured(1.0, 1, 5.0, 0.5, (3.0, 4.0)),
        ev.SavedBytesMeasured(1.0, 1, (0, 64), 72),
        ev.ParametersClassified(1.0, 1, "TT", "11"),
    )
    assert state.tree.norms == (3.0, 4.0)
    apply(state, coop_model())
    tree = state.tree
    assert len(tree.states) == len(tree.trainable) == len(tree.parameters)
    assert set(tree.states) == {"-"}
    assert (tree.norms, tree.saved, tree.version, len(state.history)) == (None, None, 2, 0)
    assert state.gradient_norm.last == 5.0, "the curve of the run goes on"


def test_figures_of_another_tree_are_left_out() -> None:
    state = state_after(
        found(MLP),
        ev.GradientsMeasured(1.0, 1, 5.0, None, (1.0, 2.0, 3.0)),
        ev.SavedBytesMeasured(1.0, 1, (1, 2, 3), 6),
        ev.ParametersClassified(1.0, 1, "TTT", "111"),
    )
    assert (state.tree.norms, state.tree.saved, state.tree.states) == (None, None, "--")
    assert state.gradient_norm.last == 5.0


def test_progress_adds_up() -> None:
    phases = (ev.PhaseTime(Phase.FORWARD, 0.5, 1), ev.PhaseTime(Phase.BACKWARD, 1.0, 2))
    state = state_after(
        progress(1, phases=phases, own_seconds=0.25),
        progress(4, 3, micro_steps=6, skipped_steps=1, optimizer_steps=(1, 2), phases=phases, own_seconds=0.03),
    )
    assert (state.step, state.micro_steps, state.skipped_steps, state.optimizer_steps) == (4, 7, 1, [2, 2])
    assert (state.phases[Phase.FORWARD].seconds, state.phases[Phase.BACKWARD].count) == (1.0, 4)
    cost = state.cost
    assert (cost.setup_seconds, cost.own_seconds, cost.steps, cost.step_seconds) == (0.25, 0.03, 3, 1.5)
    assert state.steps_per_second == pytest.approx(2.0)
    assert cost.recent_share == pytest.approx(0.02)


def test_rate_in_parts_equals_whole() -> None:
    state = state_after(progress(1))
    for step in (2, 3):
        apply(state, progress(step - 1, 0, phases=(ev.PhaseTime(Phase.FORWARD, 0.3, 1),), own_seconds=0.03))
        apply(state, progress(step, 1, phases=(ev.PhaseTime(Phase.OPTIMIZER, 0.2, 1),), own_seconds=0.02))
    assert state.steps_per_second == pytest.approx(2.0)
    assert state.cost.recent_share == pytest.approx(0.1)


@pytest.mark.parametrize("short", [0.002, 0.05, 2.0])
def test_rates_weigh_steps_by_the_time_they_take(short: float) -> None:
    """Steps of 4 s and shorter ones by turns, as on a busy machine: the mean of their rates would be far too high."""
    state = state_after(progress(1))
    for pair in range(60):
        for step, seconds in ((2 * pair + 2, short), (2 * pair + 3, 4.0)):
            apply(state, progress(step, phases=(ev.PhaseTime(Phase.FORWARD, seconds, 1),), own_seconds=seconds / 10))
    # The newest weigh 0.3, 0.3·0.7, 0.3·0.7², …: the long steps 1 / 1.7 of all, the short ones the rest.
    typical = (4.0 + 0.7 * short) / 1.7
    assert state.steps_per_second == pytest.approx(1 / typical)
    assert state.cost.recent_share == pytest.approx(0.1)


def test_steps_exempt_from_the_budget_are_kept_apart() -> None:
    phases = (ev.PhaseTime(Phase.FORWARD, 1.0, 1),)
    state = state_after(
        progress(1, phases=phases, own_seconds=0.5, exempt_steps=1, exempt_seconds=0.5),
        progress(4, 3, phases=phases, own_seconds=0.3, exempt_steps=2, exempt_seconds=0.25),
        progress(8, 4, phases=phases, own_seconds=0.01, exempt_steps=1, exempt_seconds=0.04),
    )
    cost = state.cost
    assert (cost.exempt_steps, cost.exempt_seconds) == (3, pytest.approx(0.29))
    assert cost.share == pytest.approx(0.31 / 2)
    assert cost.share_of_others == pytest.approx(0.02 / 1.71)


def test_one_time_work_is_no_part_of_steps() -> None:
    phases = (ev.PhaseTime(Phase.FORWARD, 1.0, 1),)
    state = state_after(
        progress(1, phases=phases, own_seconds=0.5),
        progress(4, 3, phases=phases, own_seconds=0.3, listing_seconds=0.2, paid_steps=1, paid_seconds=0.04),
    )
    cost = state.cost
    assert cost.setup_seconds == pytest.approx(0.7)
    assert (cost.own_seconds, cost.step_seconds) == (pytest.approx(0.1), pytest.approx(0.8))
    assert (cost.share, cost.paid_share, cost.exempt_share) == (pytest.approx(0.125), pytest.approx(0.05), 0.0)


def test_progress_without_a_step_leaves_the_rates_alone() -> None:
    state = state_after(progress(1), progress(2, phases=(ev.PhaseTime(Phase.DATA, 0.1, 1),)))
    rate = state.steps_per_second
    apply(state, progress(2, 0, optimizer_steps=(0,), phases=(ev.PhaseTime(Phase.EVAL, 9.0, 1),), own_seconds=1.0))
    assert state.steps_per_second == rate


def test_norm_extremes_leave_out_non_finite() -> None:
    state = state_after(
        *(
            ev.GradientsMeasured(float(i), i, total, None, None)
            for i, total in enumerate([2.0, math.nan, 8.0, math.inf, 1.0])
        )
    )
    summary = state.norm_summary
    assert (summary.first, summary.last, summary.smallest, summary.largest) == (2.0, 1.0, 1.0, 8.0)
    assert (summary.first_step, summary.last_step, summary.smallest_step, summary.largest_step) == (0, 4, 4, 2)
    assert (summary.measured_steps, summary.not_finite_steps) == (5, 2)
    assert len(state.gradient_norm) == 5


def test_newest_norms_stand_once_per_step() -> None:
    state = state_after(
        found(MLP),
        ev.GradientsMeasured(1.0, 1, 3.0, None, (3.0, None)),
        ev.GradientsMeasured(1.1, 1, 5.0, None, (3.0, 4.0)),
        ev.GradientsMeasured(2.0, 2, 1.0, None, (1.0, None)),
    )
    assert (state.tree.norms, state.tree.norms_step) == ((1.0, None), 2)
    assert state.history.rows == [(3.0, 4.0), (1.0, None)]


def test_unknown_totals_and_losses_are_no_points() -> None:
    state = state_after(ev.GradientsMeasured(1.0, 1, None, None, None))
    assert (len(state.gradient_norm), len(state.loss), state.norm_summary.measured_steps) == (0, 0, 0)


def ledger(step: int, phase: Phase, total: int, peak: int | None, *, peak_exact: bool = False) -> ev.MemoryMeasured:
    bytes_held = dataclasses.replace(held(1, 1, 1, 0), total=total)
    return ev.MemoryMeasured(float(step), step, phase, bytes_held, peak, peak_exact, True)


def step_totals(
    step: int, forward: int | None = None, optimizer: int | None = None, *, peak: int | None = None, exact: bool = False
) -> ev.StepMemoryMeasured:
    return ev.StepMemoryMeasured(float(step), step, (ev.StepTotals(step, forward, None, optimizer, peak, exact),))


def test_highest_peak_of_phase_stays_with_its_exactness() -> None:
    state = state_after(
        ledger(1, Phase.FORWARD, 100, 300, peak_exact=True),
        ledger(2, Phase.FORWARD, 120, 200),
        ledger(3, Phase.FORWARD, 110, None),
    )
    record = state.phases[Phase.FORWARD]
    assert (record.peak, record.peak_bound == "exact") == (300, True)
    assert record.last.step == 3
    apply(state, ledger(4, Phase.FORWARD, 400, 400))
    assert (record.peak, record.peak_bound == "exact") == (400, False)
    apply(state, step_totals(5, 390, peak=390))
    assert (record.peak, record.peak_bound == "exact") == (400, False)
    apply(state, step_totals(6, 410, peak=410))
    assert (record.peak, record.peak_bound == "exact") == (410, False)


def test_exact_peak_is_of_highest_phase() -> None:
    state = state_after(step_totals(1, 100, 120, peak=500, exact=True), step_totals(2, 130, 110, peak=400, exact=True))
    forward, optimizer = state.phases[Phase.FORWARD], state.phases[Phase.OPTIMIZER]
    assert (optimizer.peak, optimizer.peak_bound == "exact") == (500, True)
    assert (forward.peak, forward.peak_bound == "exact") == (400, True)


def test_totals_cover_unsampled_steps_too() -> None:
    figures = tuple(ev.StepTotals(step, 100 + step, None, 50, 100 + step) for step in range(2, 5))
    state = state_after(
        step_totals(1, 100, 60, peak=100),
        ledger(1, Phase.FORWARD, 100, 300, peak_exact=True),
        ev.StepMemoryMeasured(4.0, 4, figures),
    )
    assert [*state.phases[Phase.FORWARD].totals] == [(1, 100), (2, 102), (3, 103), (4, 104)]
    assert [*state.phases[Phase.OPTIMIZER].totals] == [(1, 60), (2, 50), (3, 50), (4, 50)]
    assert [*state.phases[Phase.BACKWARD].totals] == []
    assert [*state.step_memory.peak] == [(1, 100), (2, 102), (3, 103), (4, 104)]
    assert state.step_memory.newest == figures[-1]


def test_an_answered_command_is_no_longer_pending() -> None:
    state = state_after(found(MLP))
    freeze, again, pause = SetTrainable(1, "fc", False), SetTrainable(2, "fc", False), Pause(3)
    for command in (freeze, again, pause):
        state.note_submitted(command)
    assert state.pending_toggles() == [freeze, again]
    apply(state, ev.CommandApplied(1.0, 1, freeze, "froze fc", (0, 1)))
    apply(state, ev.CommandRejected(1.0, 1, again, "fc is already frozen"))
    apply(state, ev.CommandApplied(1.0, 1, pause, "pause", ()))
    assert state.pending == {}
    assert [(event.text, event.command) for event in state.interventions] == [("froze fc", freeze)]
    assert [entry.kind for entry in state.log[-3:]] == ["model", "applied", "rejected"]


def test_a_refusal_names_what_was_refused() -> None:
    state = state_after(found(MLP))
    asked = [
        SetTrainable(1, "fc", False),
        SetTrainable(2, "", True),
        Pause(3),
        Resume(4),
        RunSteps(5, 2),
        StopTraining(6),
    ]
    for command in asked:
        state.note_submitted(command)
        apply(state, ev.CommandRejected(1.0, 1, command, "it is so"))
    assert [entry.text for entry in state.log if entry.kind == "rejected"] == [
        "cannot freeze fc: it is so",
        "cannot unfreeze the model: it is so",
        "cannot pause: it is so",
        "cannot resume: it is so",
        "cannot run 2 steps: it is so",
        "cannot stop training: it is so",
    ]


def test_holding_and_going_on_are_one_line_each() -> None:
    state = state_after(found(MLP))
    del state.log[:]

    def ask(command: Pause | Resume | RunSteps, *then: bool) -> list[str]:
        before = len(state.log)
        state.note_submitted(command)
        apply(state, ev.CommandApplied(1.0, 1, command, "words", ()))
        for paused in then:
            apply(state, ev.PauseChanged(1.0, 1, paused))
        return [entry.text for entry in state.log[before:]]

    assert ask(Pause(1), True) == ["paused"]
    assert ask(RunSteps(2), False, True) == ["paused"], "a single step ends in another hold"
    assert ask(Resume(3), False) == ["running"]
    assert ask(RunSteps(4), True) == ["paused"]
    assert ask(RunSteps(5), False) == []
    assert ask(Resume(6)) == []
    assert [ask(Pause(7), True), ask(Resume(8), False)] == [["paused"], ["running"]]


def test_norms_of_other_models_are_summed_up_apart() -> None:
    state = state_after(found(MLP), ev.GradientsMeasured(1.0, 1, 8.0, None, None))
    apply(state, coop_model())
    assert state.norm_summary.last == 8.0, "until there is another norm"
    for step, norm in ((5, 2.0), (6, 3.0)):
        apply(state, ev.GradientsMeasured(2.0, step, norm, None, None))
    summary = state.norm_summary
    assert (summary.first, summary.last, summary.measured_steps, summary.since_step) == (2.0, 3.0, 2, 0)
    apply(state, dataclasses.replace(coop_model(blocks=1), step=6))
    apply(state, ev.GradientsMeasured(3.0, 7, 1.0, None, None))
    assert (state.norm_summary.first, state.norm_summary.since_step) == (1.0, 6)


def test_tensors_are_called_tensors() -> None:
    assert state_after(found(MLP)).log[-1].text == "found Mlp (2 tensors)"
    one = Node("Scale", "Scale", (("s", ()),))
    assert state_after(found(one)).log[-1].text == "found Scale (1 tensor)"


def test_foreign_interventions_are_known_and_bounded() -> None:
    state = state_after(found(MLP))
    count = INTERVENTIONS_KEPT + 7
    for number in range(count):
        asked = SetTrainable(number, "fc", bool(number % 2))
        apply(state, ev.CommandApplied(1.0, number, asked, "done", (0, 1)))
    assert state.intervention_count == count
    assert [event.command.id for event in state.interventions] == list(range(7, count))


def test_held_and_failed_freezes_read_differently() -> None:
    state = state_after(
        ev.FreezeVerified(1.0, 11, 1, 12, 10, ()),
        ev.FreezeVerified(1.0, 11, 1, 1, 10, ()),
        ev.FreezeVerified(1.0, 11, 1, 12, 10, ("a", "b", "c", "d")),
        ev.FreezeVerified(1.0, 11, 1, 1, 10, (), rows=32_000),
        ev.FreezeVerified(1.0, 11, 1, 1, 10, ("a", "a's exp_avg"), ("x", "x"), rows=32_000),
    )
    assert [(entry.kind, entry.text) for entry in state.log] == [
        ("verified", "12 tensors unchanged bit for bit for 10 steps"),
        ("verified", "1 tensor unchanged bit for bit for 10 steps"),
        ("moved", "4 of 12 frozen tensors moved: a, b, c and 1 more"),
        ("verified", "32,000 rows and their optimizer state unchanged bit for bit for 10 steps"),
        ("moved", "of 32,000 frozen rows moved: a, a's exp_avg (x)"),
    ]


def test_a_failed_part_is_remembered() -> None:
    state = state_after(ev.ProbeFailed(1.0, 3, "forward", "ValueError: x", True))
    assert state.problems == {"forward": Problem("ValueError: x", 1)}
    assert "training was not touched" in state.log[-1].text


def test_part_failures_are_counted_and_noted_once() -> None:
    failed = [ev.ProbeFailed(1.0, step, "forward", f"ValueError: {step}", step == 3) for step in (1, 2, 3)]
    state = state_after(*failed)
    assert state.problems == {"forward": Problem("ValueError: 3", 3)}
    first, last = [entry.text for entry in state.log if entry.kind == "probe"]
    assert "ValueError: 1; training" in first
    assert "ValueError: 3; " in last


LOST, HIDDEN = NvmlTrouble(NvmlTroubleKind.LOST), NvmlTrouble(NvmlTroubleKind.PROCESS_HIDDEN)


def sampled(*troubles: NvmlTrouble | None) -> RunState:
    samples = (dataclasses.replace(device_sample(step=step), trouble=trouble) for step, trouble in enumerate(troubles))
    return state_after(started(), *samples)


def noted(state: RunState) -> list[tuple[int, str]]:
    return [(entry.step, entry.text) for entry in state.log if entry.kind == "probe"]


def test_driver_trouble_and_end_are_noted_once() -> None:
    state = sampled(None, LOST, LOST, LOST, None, None)
    assert state.problems == {"NVML": Problem(nvml_trouble_text(LOST), 1)}
    assert noted(state) == [(1, nvml_trouble_text(LOST)), (4, "NVML reports the device's figures again")]


def test_another_trouble_of_the_driver_is_noted_too() -> None:
    state = sampled(HIDDEN, HIDDEN, LOST)
    assert state.problems == {"NVML": Problem(nvml_trouble_text(LOST), 2)}
    assert noted(state) == [(0, nvml_trouble_text(HIDDEN)), (2, nvml_trouble_text(LOST))]


def test_flickering_driver_does_not_fill_log() -> None:
    state = sampled(*[LOST, None] * 20)
    assert state.problems["NVML"].failures == 20
    lines = noted(state)
    assert len(lines) == 6
    assert "further failures are not reported" in lines[-2][1]


def test_a_machine_without_a_device_has_no_trouble() -> None:
    state = sampled(None, None)
    assert (state.problems, noted(state)) == ({}, [])


def test_the_end_leaves_nothing_pending_or_paused() -> None:
    state = state_after(started(), ev.PauseChanged(1.0, 1, True))
    state.note_submitted(Pause(1))
    assert state.paused
    apply(state, ev.RunEnded(2.0, 1, 3, "Traceback"))
    assert (state.paused, state.pending) == (False, {})
    assert state.ended.exit_code == 3


def test_device_that_is_found_replaces_assumed_one() -> None:
    state = state_after(started(), ev.DeviceFound(1.0, 1, "NVIDIA H100", "CUDA allocator"))
    assert (state.started.device, state.started.ledger) == ("NVIDIA H100", "CUDA allocator")
    apply(RunState(), ev.DeviceFound(1.0, 1, "x", "y"))


def test_figures_of_other_device_are_discarded() -> None:
    state = state_after(
        started(),
        ledger(1, Phase.FORWARD, 1000, 3000),
        ledger(1, Phase.OPTIMIZER, 1000, 2000),
        step_totals(1, 1000, 1000, peak=1000),
        ev.DeviceFound(2.0, 1, "NVIDIA H100", "CUDA allocator"),
        ledger(2, Phase.FORWARD, 100, 200, peak_exact=True),
        step_totals(2, 100, peak=100),
    )
    forward, optimizer = state.phases[Phase.FORWARD], state.phases[Phase.OPTIMIZER]
    assert (forward.peak, forward.peak_bound == "exact", list(forward.totals.values)) == (200, True, [100])
    assert (optimizer.last, optimizer.peak, state.unexplained_first) == (None, None, None)
    assert [*state.step_memory.peak] == [(2, 100)]


def test_the_log_is_bounded() -> None:
    state = RunState()
    for step in range(3 * LOG_LENGTH):
        apply(state, ev.PauseChanged(float(step), step, True))
    assert len(state.log) <= LOG_LENGTH
    assert state.log[-1].step == 3 * LOG_LENGTH - 1


def test_new_optimizers_are_named_once() -> None:
    adam, sgd = OptimizerInfo("Adam", 1, (0,), 0), OptimizerInfo("SGD", 1, (1,), 0)
    state = state_after(ev.OptimizersFound(0.0, 0, (adam,)), ev.OptimizersFound(0.0, 0, (adam, sgd)))
    assert [entry.text for entry in state.log] == ["found optimizer Adam", "found optimizer SGD"]
    assert state.optimizer_steps == [0, 0]


def test_a_whole_run_folds_into_a_consistent_state() -> None:
    state = state_after(*coop_run())
    assert state.step == 120
    assert state.optimizer_steps == [120]
    assert len(state.tree.states) == len(state.tree.parameters)
    assert state.tree.norms is not None
    assert len(state.loss) == len(state.gradient_norm) == 120


def test_first_nan_is_kept_and_each_noted() -> None:
    first = ev.NonFiniteFound(1.0, 8, 1, "Inf", Phase.BACKWARD, 7, parameter="fc.bias")
    later = ev.NonFiniteFound(2.0, 9, 2, "NaN", Phase.DATA, 8)
    readings = [ev.GradientsMeasured(3.0 + i, 10 + i, math.nan, math.nan, (math.nan,) * 2) for i in range(3)]
    state = state_after(found(MLP), first, later, *readings, found(MLP, at=9.0, step=13))
    assert state.bad_step == first
    noted = [(entry.step, entry.text) for entry in state.log if entry.kind == "not finite"]
    assert noted == [(8, nonfinite_text(first)), (9, nonfinite_text(later))]


def test_pause_at_nan_is_known_until_held() -> None:
    on = ev.CommandApplied(1.0, 0, PauseAtBadStep(1, True), "pauses", ())
    state = state_after(on)
    assert state.pauses_at_bad_step
    apply(state, ev.NonFiniteFound(2.0, 3, 1, "NaN", Phase.DATA, 2, holds=True))
    assert not state.pauses_at_bad_step
    apply(state, on)
    apply(state, ev.CommandApplied(3.0, 0, PauseAtBadStep(2, False), "no longer pauses", ()))
    assert not state.pauses_at_bad_step


def histogram(parameter: int) -> GradientHistogram:
    return GradientHistogram(parameter, (1,) * BINS, 0, 0, 0, 0, 0, 0, BINS, BINS)


def test_ratios_become_history_and_histograms_stay_newest() -> None:
    state = state_after(found(MLP))
    for step, ratio in ((3, 0.5), (5, None), (8, 0.25)):
        figures = gradient_stats(1, ratio)
        apply(state, ev.GradientFiguresMeasured(1.0, step, (figures,)))
        apply(state, ev.GradientHistogramsMeasured(1.0, step, (histogram(1), histogram(99))))
    assert list(state.tree.ratios.of(1)) == [(3, 0.5), (8, 0.25)]
    assert {index: step for index, (step, _) in state.tree.histograms.items()} == {1: 8}
    apply(state, found(MLP))
    assert len(state.tree.ratios) == 0
    assert not state.tree.histograms


def test_histograms_are_bounded_and_oldest_goes() -> None:
    weights = tuple((f"p{i}", (2,)) for i in range(HISTOGRAMS_KEPT + 5))
    state = state_after(found(Node("Many", "Many", weights)))
    for index in (*range(HISTOGRAMS_KEPT), 0, *range(HISTOGRAMS_KEPT, HISTOGRAMS_KEPT + 5)):
        apply(state, ev.GradientHistogramsMeasured(1.0, 1, (histogram(index),)))
    assert len(state.tree.histograms) == HISTOGRAMS_KEPT
    assert 0 in state.tree.histograms
    assert not {1, 2, 3, 4, 5} & state.tree.histograms.keys()


def test_the_clip_threshold_is_a_curve() -> None:
    state = state_after(found(MLP))
    for step, at in ((1, 1.0), (2, None), (3, 0.5)):
        before = 9.0 if at is not None else None
        apply(state, ev.GradientsMeasured(1.0, step, 1.0, None, None, before, at))
    assert list(state.clip_thresholds) == [(1, 1.0), (3, 0.5)]


def test_watching_is_noted_nowhere() -> None:
    state = state_after(found(MLP))
    entries = len(state.log)
    apply(state, ev.CommandApplied(1.0, 1, Watch(1, ("fc.weight",)), "measure gradients in detail", ()))
    assert len(state.log) == entries


def test_non_finite_gradient_shows_before_states() -> None:
    model = coop_model()
    letters, trainable = coop_states(model)
    trained = letters.index("T")
    norms: list[float | None] = [None] * len(model.parameters)

    def seen(*values: float) -> str:
        state = state_after(model, ev.ParametersClassified(1.0, 1, letters, trainable))
        for step, value in enumerate(values, 2):
            norms[trained] = value
            apply(state, ev.GradientsMeasured(float(step), step, value, None, tuple(norms)))
        return state.tree.states

    assert seen(1.0) == letters
    assert seen(1.0, math.nan) == letters[:trained] + "N" + letters[trained + 1 :]
    assert seen(math.inf)[trained] == "N"


def test_readings_tell_trained_from_zero_gradient() -> None:
    # As LoRA's first matrix: its gradient is zero in the first step, since the second matrix is.
    def after(*readings: tuple[tuple[float | None, ...], tuple[int | None, ...] | None], states: str = "ZT") -> str:
        state = state_after(found(MLP), ev.ParametersClassified(1.0, 1, states, "11"))
        for step, (norms, steps) in enumerate(readings, 2):
            total = math.hypot(*(norm for norm in norms if norm is not None))
            apply(state, ev.GradientsMeasured(float(step), step, total, None, norms, norm_steps=steps))
        return state.tree.states

    assert after() == after(((0.0, 2.0), None)) == after(((None, 2.0), None)) == "ZT"
    assert after(((0.5, 2.0), None)) == "TT"
    assert after(((0.5, 0.0), None)) == "TZ"
    assert after(((0.5, 0.0), None), ((0.0, 1.0), None)) == "ZT"
    # The second norm is that of an earlier step: another optimizer has stepped since.
    assert after(((0.5, 0.0), (2, 1))) == "TT"
    assert after(((math.nan, 2.0), None)) == "ZT"
    # The first steps overflowed under a loss scaler; the later ones were applied.
    assert after(((1.0, 0.0), None), states="NS") == "TZ"
    assert after(((math.inf, None), None), states="NS") == "NS"
    assert after(((1.0, 1.0), None), states="FU") == "FU"
    # The loss scaler leaves out a step in which one gradient overflows, and with it all the others.
    assert after(((1.0, math.inf), None), states="SS") == "SS"


def test_step_skipped_later_is_taken_back() -> None:
    state = RunState()
    apply(state, ev.Progress(1.0, 5, 5, 5, 0, (3, 2), (), 0.0, 1, 1))
    apply(state, ev.Progress(2.0, 4, 0, 0, 1, (0, -1), (), 0.0, 1, 1))
    assert (state.step, state.skipped_steps, state.optimizer_steps) == (4, 1, [3, 1])
