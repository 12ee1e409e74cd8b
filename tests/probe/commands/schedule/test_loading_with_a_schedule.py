"""A checkpoint that was saved while something was unfrozen loads in a run with the schedule that unfroze it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from helpers.toggling import X, bits, small
from helpers.training import square_steps
from helpers.watched import Watched, watched
from torch import nn

from gradtui.probe.commands.schedule.replayed_schedule import ReplayedSchedule
from gradtui.protocol.commands import Command, SaveCheckpoint, SetTrainable, Undo
from gradtui.protocol.events import CommandApplied, ScheduleNoted
from gradtui.protocol.schedule import Scheduled

MIDDLE, FIRST = "2", "0"


def unfreezing(path: str) -> Command:
    return SetTrainable(-1, path, True)


def freezing(path: str) -> Command:
    return SetTrainable(-1, path, False)


def schedule_of(*given: tuple[int, Command]) -> ReplayedSchedule:
    return ReplayedSchedule(
        Scheduled(step, command, title=f"entry {number} (step {step})")
        for number, (step, command) in enumerate(given, 1)
    )


def head_only(
    seen: Watched | None = None, schedule: ReplayedSchedule | None = None
) -> tuple[nn.Module, torch.optim.Adam]:
    """As the script makes them: only the head trains."""
    if seen is not None and schedule is not None:
        seen.probe.dispatcher.schedule = schedule
    model = small()
    model[:4].requires_grad_(False)
    return model, torch.optim.Adam(model[4].parameters(), lr=0.01)


Saved = tuple[dict[str, Any], dict[str, Any]]


def saved_after(schedule: ReplayedSchedule, steps: int) -> tuple[Saved, dict[str, list[float]]]:
    """What the script saves after so many steps, and its weights after five more."""
    with watched() as seen:
        model, optimizer = head_only(seen, schedule)
        square_steps(model, optimizer, X, steps)
        kept = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
        square_steps(model, optimizer, X, 5)
    return kept, bits(model)


def resumed_with(kept: Saved, schedule: ReplayedSchedule) -> tuple[Watched, nn.Module, torch.optim.Adam]:
    with watched() as seen:
        model, optimizer = head_only(seen, schedule)
        model.load_state_dict(kept[0])
        optimizer.load_state_dict(kept[1])
        square_steps(model, optimizer, X, 5)
    return seen, model, optimizer


def notes(seen: Watched) -> list[str]:
    return [event.text for event in seen.all(ScheduleNoted)]


def test_the_resumed_run_goes_on_to_the_bit() -> None:
    kept, straight = saved_after(schedule_of((2, unfreezing(MIDDLE))), 6)
    assert [len(group["params"]) for group in kept[1]["param_groups"]] == [4]
    with pytest.raises(ValueError, match="doesn't match the size"):
        head_only()[1].load_state_dict(kept[1])
    seen, model, _ = resumed_with(kept, schedule_of((2, unfreezing(MIDDLE))))
    assert bits(model) == straight
    assert ": entry 1 (step 2)." in notes(seen)[0]
    assert [(event.step, event.command) for event in seen.all(CommandApplied)] == [(0, unfreezing(MIDDLE))]


def test_what_was_frozen_again_loads_in_plain_python() -> None:
    for back in (freezing(MIDDLE), Undo(-1)):
        kept, straight = saved_after(schedule_of((2, unfreezing(MIDDLE)), (4, back)), 6)
        model, optimizer = head_only()
        model.load_state_dict(kept[0])
        optimizer.load_state_dict(kept[1])
        square_steps(model, optimizer, X, 5)
        assert bits(model) == straight


def test_saved_groups_load_into_script_that_unfreezes() -> None:
    kept, straight = saved_after(schedule_of((2, unfreezing(MIDDLE))), 6)
    model, _ = head_only()
    model[2].requires_grad_(True)
    optimizer = torch.optim.Adam([*model[4].parameters(), *model[2].parameters()], lr=0.01)
    model.load_state_dict(kept[0])
    optimizer.load_state_dict(kept[1])
    square_steps(model, optimizer, X, 5)
    assert bits(model) == straight


def test_only_as_many_entries_as_needed_are_applied() -> None:
    both = (2, unfreezing(MIDDLE)), (8, unfreezing(FIRST))
    kept, _ = saved_after(schedule_of(*both), 6)
    seen, _, optimizer = resumed_with(kept, schedule_of(*both))
    assert len(optimizer.param_groups[0]["params"]) == 4
    assert seen.probe.dispatcher.schedule.left[0].step == 8
    assert "the other entries" in notes(seen)[0]
    kept, _ = saved_after(schedule_of(*both), 10)
    _, _, optimizer = resumed_with(kept, schedule_of(*both))
    assert len(optimizer.param_groups[0]["params"]) == 6


def test_undone_entries_are_undone_once_in_replay(tmp_path: Any) -> None:
    file = tmp_path / "never.pt"
    given = (
        (1, unfreezing(FIRST)),
        (2, SaveCheckpoint(-1, str(file))),
        (3, Undo(-1)),
        (4, unfreezing(MIDDLE)),
        (5, unfreezing(FIRST)),
    )
    kept, straight = saved_after(schedule_of(*given), 6)
    file.unlink()
    seen, model, _ = resumed_with(kept, schedule_of(*given))
    assert bits(model) == straight
    assert not file.exists()
    assert not seen.probe.dispatcher.schedule.left


def test_ambiguous_checkpoint_is_not_guessed_at() -> None:
    given = (1, unfreezing(FIRST)), (3, freezing(FIRST)), (4, unfreezing(MIDDLE))
    kept, _ = saved_after(schedule_of(*given), 6)
    with watched() as seen:
        model, optimizer = head_only(seen, schedule_of(*given))
        with pytest.raises(ValueError, match="doesn't match the size"):
            optimizer.load_state_dict(kept[1])
        assert [parameter.requires_grad for parameter in model.parameters()] == [False] * 4 + [True] * 2
        assert len(optimizer.param_groups[0]["params"]) == 2
    assert "several entries make it fit" in notes(seen)[0]


@pytest.mark.parametrize("given", [(), ((2, unfreezing(FIRST)), (3, unfreezing(MIDDLE)))])
def test_unfitting_checkpoint_fails_as_plainly_with_hint(
    given: Sequence[tuple[int, Command]],
) -> None:
    foreign = torch.optim.Adam([nn.Parameter(torch.zeros(1)) for _ in range(7)]).state_dict()
    with watched() as seen:
        model, optimizer = head_only(seen, schedule_of(*given))
        with pytest.raises(ValueError, match="doesn't match the size"):
            optimizer.load_state_dict(foreign)
        assert [parameter.requires_grad for parameter in model.parameters()] == [False] * 4 + [True] * 2
        optimizer.load_state_dict(optimizer.state_dict())
    (note,) = notes(seen)
    hint = (
        "no entries of the schedule make it fit" if given else "if an unfreeze added the others, run with the schedule"
    )
    assert "a state of 7" in note
    assert hint in note


def test_loading_during_training_applies_nothing() -> None:
    kept, _ = saved_after(schedule_of((2, unfreezing(MIDDLE))), 6)
    with watched() as seen:
        model, optimizer = head_only(seen, schedule_of((20, unfreezing(MIDDLE))))
        square_steps(model, optimizer, X, 2)
        with pytest.raises(ValueError, match="doesn't match the size"):
            optimizer.load_state_dict(kept[1])
    assert seen.all(CommandApplied) == []


def test_state_from_before_unfreeze_loads_during_it() -> None:
    """As a script does that goes back to its best state: what was added steps aside for the load, with its own state."""
    with watched() as seen:
        model, optimizer = head_only(seen, schedule_of((2, unfreezing(MIDDLE))))
        square_steps(model, optimizer, X, 2)
        best = copy.deepcopy(optimizer.state_dict())
        square_steps(model, optimizer, X, 4)
        moment = optimizer.state[model[2].weight]["exp_avg"].clone()
        optimizer.load_state_dict(best)
        assert torch.equal(optimizer.state[model[2].weight]["exp_avg"], moment)
        assert [optimizer.state[p]["step"].item() for p in optimizer.param_groups[0]["params"]] == [2, 2, 4, 4]
        before = bits(model)
        square_steps(model, optimizer, X, 1)
    assert bits(model)["2.weight"] != before["2.weight"]
    assert notes(seen) == []


def test_groups_return_after_failed_load() -> None:
    with watched() as seen:
        model, optimizer = head_only(seen, schedule_of((2, unfreezing(MIDDLE))))
        square_steps(model, optimizer, X, 4)
        with pytest.raises(KeyError):
            optimizer.load_state_dict({"param_groups": [{"params": [0, 1]}]})
        assert len(optimizer.param_groups[0]["params"]) == 4
        square_steps(model, optimizer, X, 2)
