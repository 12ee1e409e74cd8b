"""Markers of what changed in a run, and the rule that tells jumps of a learning rate from a schedule."""

from __future__ import annotations

import math

import pytest
from helpers.states import state_after

from gradtui.protocol import events as ev
from gradtui.protocol.commands import (
    Intervention,
    SetCheckpointing,
    SetGroup,
    SetLearningRate,
    SetMode,
    SetTrainable,
    SkipStep,
    TrainOnly,
    Undo,
    ZeroGradients,
)
from gradtui.protocol.freezes import Changed
from gradtui.protocol.vocabulary import GroupSettings
from gradtui.run.reducer import apply
from gradtui.run.state.findings import Finding, Level, Status
from gradtui.run.state.over_steps.markers import MarkerKind, markers
from gradtui.run.state.parts.rate_jumps import JUMPS_KEPT
from gradtui.run.state.run_state import RunState


def applied(step: int, command: Intervention, *changed: Changed, undone: int | None = None) -> ev.CommandApplied:
    return ev.CommandApplied(float(step), step, command, "", (), changed, undone=undone)


def rates(step: int, before: int | None, *values: float) -> ev.GroupsRead:
    return ev.GroupsRead(float(step), step, (tuple(GroupSettings(value, 0.0) for value in values),), before)


def shown_markers(state: RunState) -> list[tuple[int, str, str]]:
    return [(marker.step, str(marker.kind), marker.words) for marker in markers(state)]


def schedule(values: list[float], every: int = 1) -> RunState:
    """The state after a run whose rate is read at each `every`th step and reported where it has changed."""
    state = RunState()
    for step in range(1, len(values) + 1, every):
        now, last = values[step - 1], values[step - 1 - every] if step > every else None
        if now != last:
            apply(state, rates(step, step - every if last is not None else None, now))
    return state


def test_every_change_is_a_marker_at_its_step() -> None:
    state = state_after(
        applied(3, SetTrainable(1, "blocks.7", False)),
        applied(5, SetTrainable(2, "blocks.7", True)),
        applied(7, SetCheckpointing(3, "blocks", True)),
        applied(8, SetCheckpointing(4, "", False)),
        applied(9, SetGroup(5, 0, 0, 5e-4)),
        applied(9, SetGroup(6, 0, 0, weight_decay=0.1)),
        applied(10, TrainOnly(7, "ctx"), Changed(True, ("ctx",)), Changed(False, ("a", "b"))),
        applied(11, SetMode(8, "head", training=False)),
        applied(12, ZeroGradients(9)),
        applied(13, SkipStep(10)),
        applied(14, SetLearningRate(11, "head", 5e-4)),
    )
    assert shown_markers(state) == [
        (3, "freeze", "blocks.7"),
        (5, "unfreeze", "blocks.7"),
        (7, "checkpointing", "blocks"),
        (8, "checkpointing", "the model off"),
        (9, "learning rate", "→ 0.0005"),
        (9, "change", "decay → 0.1"),
        (10, "unfreeze", "only ctx"),
        (10, "freeze", "only ctx"),
        (11, "change", "head eval"),
        (12, "change", "gradients cleared"),
        (13, "change", "step skipped"),
        (14, "learning rate", "head → 0.0005"),
    ]
    assert [marker.of for marker in markers(state) if marker.step > 10] == state.interventions[-4:]


def test_undo_is_opposite_of_what_it_undoes() -> None:
    state = state_after(
        applied(1, SetTrainable(1, "a", False)),
        applied(2, SetCheckpointing(2, "b", True)),
        applied(3, Undo(3), undone=2),
        applied(4, Undo(4), undone=1),
        # The command that it has undone is not in the list any more.
        applied(5, Undo(5), undone=0),
    )
    assert shown_markers(state)[2:] == [(3, "checkpointing", "b off"), (4, "unfreeze", "a"), (5, "change", "undo")]


def test_only_confirmed_findings_are_markers() -> None:
    state = RunState()
    for rule, status in (("GT204", Status.CONFIRMED), ("GT101", Status.SUSPECTED)):
        state.findings.append(Finding(rule, Level.WARNING, status, "", "", "", 12, 20))
    assert shown_markers(state) == [(12, "finding", "GT204")]


def test_milestone_is_jump_however_often_rate_is_read() -> None:
    values = [0.1] * 30 + [0.01] * 30
    assert shown_markers(schedule(values)) == [(30, "learning rate", "0.1 → 0.01")]
    assert shown_markers(schedule(values, every=7)) == [(35, "learning rate", "0.1 → 0.01")], (
        "36 is the first such reading"
    )


@pytest.mark.parametrize("every", [1, 10])
def test_steadily_moving_schedule_has_no_jumps(every: int) -> None:
    warmup = [step / 50 for step in range(1, 51)]
    cosine = [(1 + math.cos(math.pi * step / 200)) / 2 for step in range(200)]
    assert shown_markers(schedule(warmup + cosine, every)) == []


def test_small_changes_are_no_jumps() -> None:
    assert shown_markers(schedule([1.0] * 10 + [0.9] * 10 + [0.81] * 10)) == []
    assert shown_markers(schedule([1.0] * 10 + [0.5] * 10 + [0.0] * 10)) == [
        (10, "learning rate", "1 → 0.5"),
        (20, "learning rate", "0.5 → 0"),
    ]


def test_command_and_joint_jumps_are_one_marker() -> None:
    state = state_after(rates(1, None, 1.0, 1.0), applied(8, SetGroup(1, 0, 0, 0.1)), rates(9, 8, 0.1, 1.0))
    assert shown_markers(state) == [(8, "learning rate", "→ 0.1")]
    assert shown_markers(state_after(rates(1, None, 1.0, 2.0), rates(9, 8, 0.1, 0.2))) == [
        (8, "learning rate", "2 learning rates")
    ]


def test_jumps_are_bounded() -> None:
    values = [10.0 ** (step // 2 % 2) for step in range(4 * JUMPS_KEPT)]
    assert len(schedule(values).rate_jumps.jumps) == JUMPS_KEPT


def test_kinds_are_in_drawing_order() -> None:
    assert next(iter(MarkerKind)) is MarkerKind.MODEL
