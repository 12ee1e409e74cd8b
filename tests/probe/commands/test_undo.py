"""Taking back what was applied: the latest first, exactly what it changed, and nothing that is in the way."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Mapping

import pytest
import torch
from helpers.toggling import freeze, unfreeze
from helpers.training import square_step
from helpers.watched import Watched, watched
from torch import nn

from gradtui.protocol.commands import Command, SetCheckpointing, SkipStep, Undo
from gradtui.protocol.events import CommandApplied, CommandRejected
from gradtui.run.state.changes.changes import changes
from gradtui.run.state.over_steps.markers import markers
from gradtui.run.text import refusals

X = torch.linspace(-1, 1, 24).view(6, 4)


def model_of_three() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2))


def train(model: nn.Module, at: Mapping[int, list[Callable[[int], Command]]], steps: int = 8) -> Watched:
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    with watched() as seen:
        for _ in seen.steps(steps, at):
            square_step(model, optimizer, X)
    return seen


def flags(model: nn.Module) -> list[bool]:
    return [parameter.requires_grad for parameter in model.parameters()]


def listed(seen: Watched) -> list[tuple[int, str]]:
    """The id and the status of each change."""
    return [(change.command.id, change.status.value) for change in changes(seen.state)]


def marked(seen: Watched) -> list[str]:
    return [f"{marker.kind} {marker.words}" for marker in markers(seen.state)]


def test_only_what_was_changed_is_set_back() -> None:
    model = model_of_three()
    model[1].weight.requires_grad_(False)
    train(model, {2: [freeze("1")], 4: [Undo]})
    assert flags(model) == [True, True, False, True, True, True]


def test_the_latest_comes_first_and_each_only_once() -> None:
    model = model_of_three()
    seen = train(model, {2: [freeze("0")], 3: [freeze("1")], 4: [Undo], 5: [Undo], 6: [Undo]})
    assert flags(model) == [True] * 6
    texts = [event.text.partition(":")[0] for event in seen.all(CommandApplied)]
    assert texts == ["froze 0", "froze 1", "unfroze 1", "unfroze 0"]
    assert seen.refusals() == ["there is nothing to undo"]


def test_it_is_refused_where_freeze_itself_would_be() -> None:
    model = model_of_three()
    model[0].requires_grad_(False)

    def freeze_the_rest(number: int) -> Command:
        model[1].requires_grad_(False)
        model[2].requires_grad_(False)
        return Undo(number)

    seen = train(model, {2: [unfreeze("0")], 6: [freeze_the_rest]})
    assert flags(model) == [True, True, False, False, False, False]
    (rejected,) = seen.all(CommandRejected)
    assert rejected.reason.startswith(refusals.cannot_be_undone("unfroze 0", "nothing would train"))


def test_nothing_is_kept_alive_to_be_taken_back() -> None:
    model = model_of_three()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    reference = weakref.ref(model[1].weight)
    with watched() as seen:
        for _ in seen.steps(4, {2: freeze("1")}):
            square_step(model, optimizer, X)
        del model, optimizer
        gc.collect()
        assert reference() is None


def test_freeze_undone_by_script_does_not_block_older() -> None:
    model = model_of_three()

    def set_back(number: int) -> Command:
        model[1].requires_grad_(False)
        return Undo(number)

    model[1].requires_grad_(False)
    seen = train(model, {2: [freeze("0")], 3: [unfreeze("1")], 5: [set_back, Undo]})
    (rejected,) = seen.all(CommandRejected)
    assert rejected.reason == refusals.cannot_be_undone("unfroze 1", refusals.NOTHING_LEFT)
    assert flags(model) == [True, True, False, False, True, True]
    assert listed(seen) == [(1, "undone"), (2, "applied"), (3, "refused"), (4, "applied")]
    assert marked(seen) == ["freeze 0", "unfreeze 1", "unfreeze 0"]


def test_irreversible_command_is_not_taken_for_undone() -> None:
    seen = train(model_of_three(), {2: [freeze("0")], 3: [SkipStep], 5: [Undo]})
    assert listed(seen) == [(1, "undone"), (2, "applied"), (3, "applied")]
    assert marked(seen) == ["freeze 0", "change step skipped", "unfreeze 0"]


def test_checkpointing_that_never_ran_is_not_undone() -> None:
    def checkpoint(on: bool) -> Callable[[int], Command]:
        return lambda number: SetCheckpointing(number, "1", on)

    seen = train(model_of_three(), {2: [freeze("0")], 3: [checkpoint(True), checkpoint(False)], 5: [Undo, Undo]})
    assert listed(seen) == [(1, "undone"), (2, "undone"), (3, "applied"), (4, "applied"), (5, "applied")]
    assert marked(seen) == ["freeze 0", "checkpointing 1", "checkpointing 1 off", "checkpointing 1 off", "unfreeze 0"]


class Around(nn.Module):
    """Another model that is made of the parts of the first one, and of one of its own."""

    def __init__(self, first: nn.Sequential) -> None:
        super().__init__()
        self.own = nn.Linear(4, 4)
        self.parts = nn.ModuleList(first)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.own(x)
        for part in self.parts:
            x = part(x)
        return x


def train_two(second: Callable[[nn.Sequential], nn.Module]) -> tuple[nn.Module, torch.optim.Optimizer, Watched]:
    """Freeze a part of a first model, go on with a second one that has its parts, all frozen but its own, and undo there."""
    first = model_of_three()
    with watched() as seen:
        optimizer = torch.optim.Adam(first.parameters(), lr=0.01)
        model: nn.Module = first
        for step in seen.steps(10, {2: freeze("1")}):
            if step == 5:
                first.requires_grad_(False)
                model = second(first)
                optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.01)
            if step == 7:
                seen.submit(Undo)
            square_step(model, optimizer, X)
    return model, optimizer, seen


def test_undo_spares_other_model_of_same_parameters() -> None:
    model, optimizer, seen = train_two(Around)
    (rejected,) = seen.all(CommandRejected)
    assert rejected.reason == (refusals.cannot_be_undone("froze 1", refusals.model_replaced("Sequential", "Around")))
    assert [name for name, parameter in model.named_parameters() if parameter.requires_grad] == [
        "own.weight",
        "own.bias",
    ]
    assert len(optimizer.param_groups[0]["params"]) == 2


def test_it_follows_a_model_into_a_wrapper() -> None:
    def wrapped(first: nn.Sequential) -> nn.Module:
        return nn.Sequential(first, nn.Linear(2, 2))

    model, optimizer, seen = train_two(wrapped)
    assert not seen.all(CommandRejected)
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert trained == ["0.1.weight", "0.1.bias", "1.weight", "1.bias"]
    assert len(optimizer.param_groups[0]["params"]) == 4


@pytest.mark.parametrize("then", [lambda inner: inner, nn.Sequential], ids=["out of the wrapper", "into another one"])
def test_it_follows_a_wrapped_model(then: Callable[[nn.Module], nn.Module]) -> None:
    inner = model_of_three()
    model: nn.Module = nn.Sequential(inner)
    with watched() as seen:
        optimizer = torch.optim.Adam(inner.parameters(), lr=0.01)
        for step in seen.steps(8, {2: freeze("0.1")}):
            if step == 4:
                model = then(inner)
                gc.collect()
            if step == 6:
                seen.submit(Undo)
            square_step(model, optimizer, X)
    assert not seen.all(CommandRejected)
    assert flags(inner) == [True] * 6
