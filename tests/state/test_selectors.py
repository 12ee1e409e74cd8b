from __future__ import annotations

import pytest
from helpers.fakes import coop_model, coop_run, row_of, started
from helpers.states import state_after

from gradtui.protocol import events as ev
from gradtui.protocol.commands import Pause, Resume, RunSteps, SetTrainable, StopTraining
from gradtui.protocol.vocabulary import MemoryBytes, OptimizerInfo, Phase
from gradtui.run.reducer import apply
from gradtui.run.state import selectors
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import RunStatus
from gradtui.run.text import progress_line

MODEL = coop_model()
CTX = ~row_of(MODEL, "ctx")


def running(*more: ev.Event) -> RunState:
    return state_after(*coop_run(5), *more)


def test_a_run_loads_until_something_trains() -> None:
    assert selectors.run_status(RunState()) is RunStatus.LOADING
    assert selectors.run_status(state_after(started(), MODEL)) is RunStatus.LOADING
    assert selectors.run_status(running()) is RunStatus.RUNNING


def test_a_phase_after_load_means_that_it_runs() -> None:
    assert selectors.run_status(state_after(ev.PhaseSampled(1.0, 0, Phase.FORWARD))) is RunStatus.RUNNING


@pytest.mark.parametrize(
    ("paused", "command", "status"),
    [
        (False, Pause(1), RunStatus.PAUSING),
        (False, RunSteps(1), RunStatus.PAUSING),
        (True, None, RunStatus.PAUSED),
        (True, Pause(1), RunStatus.PAUSED),
        (True, Resume(1), RunStatus.RESUMING),
        (True, RunSteps(1), RunStatus.RESUMING),
        (True, StopTraining(1), RunStatus.STOPPING),
        (False, StopTraining(1), RunStatus.STOPPING),
    ],
)
def test_commands_without_answer_are_part_of_status(paused: bool, command: Pause | None, status: RunStatus) -> None:
    state = running(ev.PauseChanged(1.0, 5, paused))
    if command is not None:
        state.note_submitted(command)
    assert selectors.run_status(state) is status


@pytest.mark.parametrize(
    ("code", "error", "status"),
    [
        (0, None, RunStatus.ENDED),
        (3, None, RunStatus.ENDED),
        (1, "Traceback (most recent call last):\nValueError: KeyboardInterrupt", RunStatus.FAILED),
        (130, "Traceback (most recent call last):\nKeyboardInterrupt\n", RunStatus.INTERRUPTED),
    ],
)
def test_how_a_run_ended(code: int, error: str | None, status: RunStatus) -> None:
    state = running(ev.RunEnded(9.0, 5, code, error))
    assert selectors.run_status(state) is status


def test_has_trained_needs_a_backward_or_a_step() -> None:
    assert not selectors.has_trained(state_after(started(), MODEL))
    assert selectors.has_trained(running())


def test_fullest_phase_is_requested_and_measured() -> None:
    assert selectors.fullest_phase(RunState(), tuple(Phase)) is None
    state = running()
    totals = {p: r.last.held.total or 0 for p, r in state.phases.items() if r.last is not None}
    assert selectors.fullest_phase(state, tuple(Phase)) is max(totals, key=lambda phase: totals[phase])
    assert selectors.fullest_phase(state, (Phase.LOAD, Phase.EVAL)) is Phase.LOAD


def test_total_below_beginning_is_measurement_too() -> None:
    less = ev.MemoryMeasured(1.0, 1, Phase.FORWARD, MemoryBytes(1, 0, 0, 0, 0, -11, -10), None, True, True)
    assert selectors.fullest_phase(state_after(less), tuple(Phase)) is Phase.FORWARD


@pytest.mark.parametrize(("backward", "fullest"), [(101, Phase.FORWARD), (99, Phase.FORWARD), (103, Phase.BACKWARD)])
def test_similar_total_does_not_change_fullest_phase(backward: int, fullest: Phase) -> None:
    totals = {Phase.FORWARD: 100, Phase.BACKWARD: backward}
    state = state_after(
        *(
            ev.MemoryMeasured(1.0, 1, phase, MemoryBytes(total, 0, 0, 0, 0, 0, total), None, True, True)
            for phase, total in totals.items()
        )
    )
    assert selectors.fullest_phase(state, tuple(totals)) is fullest


@pytest.mark.parametrize(("other", "known"), [(None, None), (-5, None), (0, None), (7, 7)])
def test_unexplained_at_load_is_known_if_measured(other: int | None, known: int | None) -> None:
    state = RunState()
    assert state.held_since_load is None
    apply(state, ev.MemoryMeasured(1.0, 0, Phase.LOAD, MemoryBytes(1, 0, 0, 0, 0, other, 8), None, True, True))
    assert state.held_since_load == known


@pytest.mark.parametrize(
    ("at_load", "other", "parts"),
    [(5, 7, (5, 2)), (5, 3, (3, 0)), (5, -2, (0, -2)), (-1, 7, (None, 7)), (None, None, (None, None))],
)
def test_unexplained_is_divided_by_presence_at_load(
    at_load: int | None, other: int | None, parts: tuple[int | None, int | None]
) -> None:
    state = RunState()
    apply(state, ev.MemoryMeasured(1.0, 0, Phase.LOAD, MemoryBytes(1, 0, 0, 0, 0, at_load, 8), None, True, True))
    assert selectors.unexplained_parts(state.held_since_load, MemoryBytes(1, 0, 0, 0, 0, other, 8)) == parts


@pytest.mark.parametrize(
    ("first", "other", "parts"),
    [(None, 9, (None, 4)), (7, 9, (2, 2)), (7, 6, (1, 0)), (3, 9, (0, 6)), (7, 2, (0, 0)), (7, None, (None, None))],
)
def test_unexplained_growth_is_divided_by_first_step(
    first: int | None, other: int | None, parts: tuple[int | None, int | None]
) -> None:
    state = RunState()
    for phase, bytes_ in ((Phase.LOAD, 5), (Phase.OPTIMIZER, first), (Phase.OPTIMIZER, 99)):
        if bytes_ != 99 or first is not None:
            apply(state, ev.MemoryMeasured(1.0, 0, phase, MemoryBytes(1, 0, 0, 0, 0, bytes_, 99), None, True, True))
    assert selectors.unexplained_growth(state, MemoryBytes(1, 0, 0, 0, 0, other, 99)) == parts


def test_the_optimizers_of_a_parameter() -> None:
    optimizers = (OptimizerInfo("SGD", 1, (CTX,), 0), OptimizerInfo("AdamW", 1, (CTX, CTX + 1), 0))
    state = running(ev.OptimizersFound(1.0, 5, optimizers))
    assert selectors.optimizers_of(state, CTX) == [0, 1]
    assert selectors.optimizers_of(state, CTX + 1) == [1]
    assert selectors.optimizers_of(state, CTX + 2) == []


def test_total_is_of_requested_step() -> None:
    state = state_after(*(ev.GradientsMeasured(1.0, step, float(step), None, None) for step in (2, 4, 6)))
    assert [selectors.total_norm_at(state, step) for step in (None, 1, 2, 3, 4, 6, 7)] == [
        None, None, 2.0, None, 4.0, 6.0, None,
    ]  # fmt: skip


def test_the_toggles_of_a_parameter_the_newest_first() -> None:
    first = ev.CommandApplied(1.0, 3, SetTrainable(1, "ctx", False), "froze ctx", (CTX,))
    second = ev.CommandApplied(2.0, 5, SetTrainable(2, "ctx", True), "unfroze ctx", (CTX, CTX + 1))
    state = running(first, second)
    assert selectors.toggles_of(state, range(CTX, CTX + 1)) == [second, first]
    assert selectors.toggles_of(state, range(CTX + 1, CTX + 2)) == [second]
    assert selectors.toggles_of(state, range(CTX + 2, CTX + 9)) == []


def test_module_keeps_for_outside_parameter() -> None:
    state = running()
    blocks = row_of(MODEL, "text_encoder.blocks")
    upstream = [-1] * len(MODEL.modules)
    inside = MODEL.modules[blocks].first_parameter
    last = blocks + MODEL.modules[blocks].subtree_modules - 1
    upstream[last] = inside
    zeros = (0,) * len(MODEL.modules)
    apply(state, ev.SavedBytesMeasured(1.0, 1, zeros, 0, tuple(upstream)))
    assert selectors.kept_for(state.tree, blocks) is None
    assert selectors.kept_for(state.tree, last) == inside
    upstream[blocks + 4] = CTX
    apply(state, ev.SavedBytesMeasured(1.0, 1, zeros, 0, tuple(upstream)))
    assert selectors.kept_for(state.tree, blocks) == CTX
    apply(state, ev.SavedBytesMeasured(1.0, 1, zeros, 0))
    assert selectors.kept_for(state.tree, blocks) is None


def test_progress_line_shows_nothing_from_later_steps() -> None:
    state = state_after(*coop_run(40))
    state.loss.append(state.step + 2, 0.25)
    line = progress_line(state)
    assert line.startswith("step 42  ")
    assert "loss 0.25  " in line
    assert "(step 40)" in line, "the norm of the last step but two"
