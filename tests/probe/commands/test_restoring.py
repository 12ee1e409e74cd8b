"""An unfreeze that restores: exactly what commands have frozen trains again, and nothing that the script froze itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch
from helpers.toggling import freeze, normed, small, step, unfreeze
from helpers.watched import Watched, watched
from torch import nn

from gradtui.protocol.commands import Command, SetTrainable, TrainOnly, Undo
from gradtui.run.text import refusals

At = Mapping[int, Callable[[int], Command]]
ADAPTED = ("0.bias", "2.bias", "4.bias")


def restore(path: str) -> Callable[[int], SetTrainable]:
    return lambda id_: SetTrainable(id_, path, True, restore=True)


def trains(model: nn.Module) -> list[str]:
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


def train(at: At, meanwhile: Callable[[nn.Module, int], None] | None = None) -> tuple[list[list[str]], Watched]:
    """Train the biases of a model alone, as an adapter. Return what trained after each step."""
    model = small()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith("bias"))
    after = []
    with watched() as seen:
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
        for number in seen.steps(8, at):
            if meanwhile is not None:
                meanwhile(model, number)
            step(model, optimizer)
            after.append(trains(model))
    return after, seen


@pytest.mark.parametrize(
    ("first", "path", "left", "answer"),
    [
        (freeze("0"), "0", ["2.bias", "4.bias"], "unfroze 0: 1 tensor, 8 parameters"),
        (lambda id_: TrainOnly(id_, "4.bias"), "", ["4.bias"], "unfroze the model: 2 tensors, 16 parameters"),
    ],
    ids=["a module", "all but one"],
)
def test_it_restores_what_was_frozen(first: Callable[[int], Command], path: str, left: list[str], answer: str) -> None:
    after, seen = train({2: first, 4: restore(path)})
    assert after[1] == after[7] == list(ADAPTED)
    assert after[3] == left
    assert seen.answers()[1] == answer


def test_an_undo_of_it_freezes_the_same_again() -> None:
    after, _ = train({2: freeze("2"), 4: restore("2"), 6: Undo})
    assert after[3] == after[7] == ["0.bias", "4.bias"]
    assert after[5] == list(ADAPTED)


def test_undo_goes_back_through_all_of_it() -> None:
    after, _ = train({1: freeze("2"), 2: restore("2"), 3: Undo, 4: Undo, 5: unfreeze("2.weight")})
    assert after[4] == list(ADAPTED)
    assert after[7] == ["0.bias", "2.weight", "2.bias", "4.bias"]


def test_the_script_may_train_a_part_again() -> None:
    def meanwhile(model: nn.Module, number: int) -> None:
        if number == 3:
            model[0].bias.requires_grad_(True)

    after, _ = train({2: freeze("0"), 4: restore("0")}, meanwhile)
    assert after[7] == list(ADAPTED)


def test_without_freeze_of_command_nothing_is_unfrozen() -> None:
    after, seen = train({2: restore("0.weight"), 4: unfreeze("0.weight")})
    assert seen.answers()[0] == refusals.nothing_to_restore("0.weight")
    assert after[3] == list(ADAPTED)
    assert after[7] == ["0.weight", *ADAPTED]


def test_unfrozen_part_is_not_in_next_freeze() -> None:
    after, _ = train({1: lambda id_: TrainOnly(id_, "4"), 2: unfreeze("0"), 3: freeze("0"), 4: restore("0")})
    assert after[7] == ["0.weight", "0.bias", "4.weight", "4.bias"]


def test_statistics_that_the_freeze_held_are_collected_again() -> None:
    """The script had frozen the weights of the norm itself, so the restored model has it frozen completely as before."""
    model = normed()
    model[0][1].requires_grad_(False)
    with watched() as seen:
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        for number in seen.steps(6, {2: freeze("0")}):
            if number == 4:
                before = model[0][1].running_mean.clone()
                seen.submit(restore("0"))
            step(model, optimizer)
        moved = not torch.equal(before, model[0][1].running_mean)
    assert "hold their statistics" in seen.answers()[0]
    assert "collect their statistics again" in seen.answers()[1]
    assert moved
    assert seen.state.tree.freezes is None
