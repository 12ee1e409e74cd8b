"""A return to a kept state: the run continues from there as a twin that was never elsewhere, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.examples import combinations
from helpers.keeping_runs import STEPS, Run, trained
from helpers.values import assert_equal
from helpers.watched import watched
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, OneCycleLR, ReduceLROnPlateau, StepLR

from gradtui.probe.commands.returns import state_keeping
from gradtui.protocol import events as ev
from gradtui.protocol.commands import Command, ForgetState, KeepState, ReturnToState, SetGroup, SetTrainable, Undo
from gradtui.records.export import schedule_file
from gradtui.records.export.schedule_file import schedule_text
from gradtui.run.text import refusals

Make = Callable[[int], Command]
KEPT, RETURNED = 4, 8

KEEP: Make = KeepState
BACK: Make = ReturnToState


OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "SGD": lambda parameters: SGD(parameters, 0.1, momentum=0.9),
    "Adam": lambda parameters: Adam(parameters, 0.01, amsgrad=True),
    "AdamW, foreach": lambda parameters: AdamW(parameters, 0.01, foreach=True),
    "AdamW, fused": lambda parameters: AdamW(parameters, 0.01, fused=True),
}
SCHEDULES: dict[str, Callable[[Optimizer], Any]] = {
    "StepLR": lambda optimizer: StepLR(optimizer, 3),
    "CosineAnnealingLR": lambda optimizer: CosineAnnealingLR(optimizer, 20),
    "OneCycleLR": lambda optimizer: OneCycleLR(optimizer, 0.2, total_steps=40),
    "LambdaLR": lambda optimizer: LambdaLR(optimizer, lambda step: 0.9**step),
    "ReduceLROnPlateau": lambda optimizer: ReduceLROnPlateau(optimizer, patience=1),
}


@pytest.mark.parametrize(("kind", "schedule"), combinations(OPTIMIZERS, SCHEDULES))
def test_steps_after_return_follow_kept_one(kind: str, schedule: str) -> None:
    run = Run(OPTIMIZERS[kind], SCHEDULES[schedule])
    seen, values = trained(run, {KEPT: [KEEP], RETURNED: [BACK]})
    # The second one is kept before the return, so that there is a way back from it.
    kept, before = seen.all(ev.StateKept)
    (back,) = seen.all(ev.ReturnedToState)
    assert before.step == back.step
    assert back.to_step == kept.step
    assert not back.differing
    assert kept.step < back.step < STEPS
    assert_equal(values[back.step :], values[kept.step :][: STEPS - back.step])


def test_keeping_alone_changes_nothing() -> None:
    _, plain = trained(Run(), {})
    _, kept = trained(Run(), {KEPT: [KEEP], RETURNED: [KEEP]})
    assert_equal(kept, plain)


def test_a_return_undoes_what_was_changed_since() -> None:
    run = Run()
    changes: dict[int, list[Make]] = {
        KEPT: [KEEP],
        KEPT + 1: [lambda number: SetTrainable(number, "head", False)],
        KEPT + 2: [lambda number: SetTrainable(number, "frozen", True), lambda number: SetGroup(number, 0, 0, 0.5)],
        RETURNED: [lambda number: ReturnToState(number, KEPT)],
    }
    seen, values = trained(run, changes)
    (back,) = seen.all(ev.ReturnedToState)
    assert not back.differing
    _, plain = trained(Run(), {})
    assert_equal(values[back.step :], plain[back.to_step :][: STEPS - back.step])
    assert seen.state.tree.trainable == seen.state.tree.first_trainable


def test_state_is_kept_before_each_change_by_itself() -> None:
    seen, _ = trained(Run(), {KEPT: [lambda number: SetTrainable(number, "head", False)]})
    (kept,) = seen.all(ev.StateKept)
    assert kept.why == "change"
    (applied,) = [each for each in seen.all(ev.CommandApplied) if isinstance(each.command, SetTrainable)]
    assert kept.step == applied.step


def test_impossible_return_is_refused_with_reason() -> None:
    def reasons(at: dict[int, list[Make]]) -> list[str]:
        seen, _ = trained(Run(), at)
        return seen.refusals()

    assert reasons({KEPT: [BACK]}) == ["no state is kept"]
    step_3 = {KEPT: [KEEP], RETURNED: [lambda number: ReturnToState(number, 3)]}
    (reason,) = reasons(step_3)
    assert reason.startswith("step 3 is not kept")
    forgotten: dict[int, list[Make]] = {
        KEPT: [KEEP],
        KEPT + 1: [lambda number: ForgetState(number, 1)],
        RETURNED: [BACK],
    }
    assert reasons(forgotten) == ["no state is kept"]
    undone: dict[int, list[Make]] = {
        1: [lambda number: SetTrainable(number, "head", False)], KEPT: [KEEP], KEPT + 1: [Undo], RETURNED: [BACK]
    }  # fmt: skip
    assert reasons(undone) == [refusals.UNDONE_SINCE]


def test_schedule_of_run_with_return_makes_same_run(tmp_path: Path) -> None:
    changes: dict[int, list[Make]] = {
        KEPT: [KEEP],
        KEPT + 1: [lambda number: SetTrainable(number, "head", False)],
        RETURNED: [lambda number: ReturnToState(number, state=1)],
    }
    seen, values = trained(Run(), changes)
    file = tmp_path / "schedule.toml"
    file.write_text(schedule_text(seen.state, "train.py"), encoding="utf-8")
    entries = schedule_file.load(file)
    kept, frozen, undone, back = entries
    assert kept.step == seen.all(ev.ReturnedToState)[0].to_step
    assert isinstance(kept.command, KeepState)
    assert isinstance(frozen.command, SetTrainable)
    assert isinstance(undone.command, Undo)
    assert isinstance(back.command, ReturnToState)
    assert (back.command.to_step, back.command.state) == (kept.step, 0)
    again, run = [], Run()
    with watched(schedule=entries):
        for _ in range(STEPS):
            run.step()
            again.append(run.values())
    assert_equal(again, values)


def test_failing_copy_does_not_prevent_freeze(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no copy")

    monkeypatch.setattr(state_keeping, "RunCopy", fails)
    run = Run()
    with watched(may_fail=True) as seen:
        for _ in seen.steps(KEPT, {1: lambda number: SetTrainable(number, "head", False)}):
            run.step()
    assert [type(each.command) for each in seen.all(ev.CommandApplied)] == [SetTrainable]
    assert not run.model.head.weight.requires_grad
    (failed,) = seen.all(ev.ProbeFailed)
    assert (failed.part, "no copy" in failed.error) == ("kept states", True)


def test_refused_change_keeps_no_state_beforehand() -> None:
    seen, _ = trained(Run(), {4: [lambda id_: SetTrainable(id_, "no.such.module", False)]})
    assert seen.all(ev.CommandRejected)
    assert list(seen.probe.dispatcher.keeping.states) == []
    assert seen.state.kept.states == {}
