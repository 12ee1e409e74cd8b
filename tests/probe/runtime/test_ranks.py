"""Commands in a distributed run: one rank must not change, hold or end its training alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from helpers.summaries import summarised
from helpers.toggling import COMMANDS
from helpers.watched import ScriptedCommands, Watched, watched
from torch import distributed, nn

from gradtui.probe.commands.schedule.replayed_schedule import ReplayedSchedule
from gradtui.protocol import commands as all_commands
from gradtui.protocol.commands import (
    Command,
    Intervention,
    Pause,
    PauseAtBadStep,
    Resume,
    RunSteps,
    RunTo,
    SaveCheckpoint,
    SetBreakpoint,
    SetGroup,
    StopTraining,
    Undo,
    ZeroGradients,
)
from gradtui.protocol.events import CommandApplied, CommandRejected, NonFiniteFound, PauseChanged, ScheduleNoted
from gradtui.protocol.schedule import Scheduled
from gradtui.run.text import refusals

X = torch.linspace(-1, 1, 24).view(6, 4)


def changes_the_run() -> list[type[Command]]:
    kinds = [kind for kind in vars(all_commands).values() if isinstance(kind, type) and issubclass(kind, Command)]
    own = [kind for kind in kinds if issubclass(kind, Intervention) and kind is not Intervention]
    return [*own, Pause, PauseAtBadStep, RunSteps, RunTo, SetBreakpoint, StopTraining]


def ranks(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: count)
    monkeypatch.setattr(distributed, "get_rank", lambda: 0)


def train(steps: int, each: Callable[[int], object] = lambda number: None) -> dict[str, object]:
    """What a run ends with."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(steps):
        each(number)
        model(X).square().mean().backward()
        optimizer.step()
    return {
        "weights": [p.tolist() for p in model.parameters()],
        "gradients": [p.grad.tolist() for p in model.parameters() if p.grad is not None],
        "modes": [module.training for module in model.modules()],
        "rate": optimizer.param_groups[0]["lr"],
        "random": torch.get_rng_state().tolist(),
    }


def held(seen: Watched) -> list[int]:
    return [event.step for event in seen.all(PauseChanged) if event.paused]


@pytest.mark.parametrize("kind", changes_the_run(), ids=lambda kind: kind.__name__)
def test_changing_command_is_refused_on_one_rank(kind: type[Command], monkeypatch: pytest.MonkeyPatch) -> None:
    alone = train(4)
    ranks(monkeypatch, 2)
    make = COMMANDS.get(kind, kind)
    with watched(commands=ScriptedCommands()) as seen:
        observed = train(4, lambda number: seen.submit(make) if number == 2 else None)
    assert observed == alone
    assert seen.all(CommandApplied) == []
    (answer,) = seen.all(CommandRejected)
    assert answer.reason.startswith("this is one of 2 ranks: ")
    assert held(seen) == []


def test_single_rank_of_group_carries_commands_out(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks(monkeypatch, 1)
    with watched(commands=ScriptedCommands()) as seen:
        train(4, lambda number: seen.submit(Pause) if number == 2 else None)
    assert held(seen) == [2]


def test_reading_command_runs_on_any_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks(monkeypatch, 2)
    with watched() as seen:
        train(2, lambda number: seen.submit(Resume) if number == 1 else None)
    assert [type(event.command) for event in seen.all(CommandApplied)] == [Resume]


@pytest.mark.parametrize(("name", "refused"), [("FullyShardedDataParallel", True), ("Sequential", False)])
def test_a_checkpoint_of_sharded_parameters_needs_all_ranks(
    name: str, refused: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Their state is gathered from all ranks: one rank alone would wait for the others."""
    ranks(monkeypatch, 2)
    model = type(name, (nn.Sequential,), {})(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched() as seen:
        for _ in seen.steps(3, {1: lambda id_: SaveCheckpoint(id_, str(tmp_path / "saved.pt"))}):
            model(X).square().mean().backward()
            optimizer.step()
    reasons = seen.refusals()
    assert reasons == [refusals.SAVE_ON_ALL] * refused
    assert (tmp_path / "saved.pt").exists() is not refused


def test_earlier_wishes_hold_no_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def each(number: int) -> None:
        if number == 0:
            seen.submit(lambda id_: RunTo(id_, 3))
        if number == 2:
            ranks(monkeypatch, 2)

    with watched(commands=ScriptedCommands()) as seen:
        train(5, each)
    assert (held(seen), seen.state.step, seen.state.runs_to) == ([], 5, None)
    (answer,) = seen.all(CommandRejected)
    assert answer.command == RunTo(answer.command.id, 3)
    assert answer.reason.startswith(refusals.one_of_ranks(2, "while this one pauses, "))


def test_nan_holds_no_rank_of_newer_group(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = ScriptedCommands()
    commands.submit(PauseAtBadStep)

    def each(number: int) -> None:
        if number == 1:
            ranks(monkeypatch, 2)

    with watched(commands=commands) as seen:
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(4):
            each(number)
            loss = model(X).square().mean()
            (loss * float("nan") if number == 2 else loss).backward()
            optimizer.step()
    (found, *_) = seen.all(NonFiniteFound)
    assert not found.holds
    assert held(seen) == []
    assert not seen.state.pauses_at_bad_step
    (answer,) = seen.all(CommandRejected)
    assert isinstance(answer.command, PauseAtBadStep)
    refused = summarised(seen.state)["refused"]
    assert refused == [{"step": 2, "command": "pause at the first NaN", "reason": answer.reason}]
    assert answer.reason.startswith(refusals.one_of_ranks(2, "while this one pauses, "))


def test_schedule_ends_run_before_its_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks(monkeypatch, 2)
    entry = Scheduled(30, SetGroup(-1, 0, 0, learning_rate=0.5), title="entry 1 (step 30)")
    with watched() as seen:
        seen.probe.dispatcher.schedule = ReplayedSchedule([entry])
        with pytest.raises(SystemExit) as ended:
            train(2)
    assert ended.value.code == 2
    (note,) = seen.all(ScheduleNoted)
    assert note.text.startswith("this is one of 2 ranks: ")
    assert seen.state.step == 0


def test_every_command_is_known_to_the_test() -> None:
    """A new command that needs arguments needs them here too."""
    for kind in changes_the_run():
        needed = [field for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING]
        assert kind in COMMANDS or len(needed) == 1, kind
    assert {Undo, ZeroGradients} <= set(changes_the_run())
