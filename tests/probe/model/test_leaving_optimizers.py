"""What an unfreeze has added to an optimizer leaves it with the freeze: the script's checkpoints are its own again."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from helpers.summaries import report_of, summarised
from helpers.toggling import freeze, small, unfreeze
from helpers.toggling import step as step_of
from helpers.training import TORCH, bits, square_step
from helpers.watched import Watched, watched
from test_optimizer_membership import VARIANTS, X, stack
from torch import nn

from gradtui.protocol.commands import Command, SetTrainable, TrainOnly, Undo
from gradtui.protocol.vocabulary import Phase

Make = Callable[[list[Any]], torch.optim.Optimizer]
At = Mapping[int, Callable[[int], Command]]


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    square_step(model, optimizer, X)


def trained(make: Make, at: At, steps: int = 9) -> tuple[nn.Module, torch.optim.Optimizer, Watched]:
    """Train a stack whose first matrix the script froze and left out of its optimizer."""
    model = stack()
    model[0].requires_grad_(False)
    with watched() as seen:
        optimizer = make([model[1].weight, model[2].weight])
        for _ in seen.steps(steps, at):
            step(model, optimizer)
    return model, optimizer, seen


def by_itself(make: Make) -> torch.optim.Optimizer:
    """The optimizer of the same training in plain torch, without any unfreeze."""
    model = stack()
    model[0].requires_grad_(False)
    optimizer = make([model[1].weight, model[2].weight])
    for _ in range(9):
        step(model, optimizer)
    return optimizer


def shape(value: Any) -> Any:
    """A state dict without the numbers that training makes."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [shape(each) for each in value]
    return tuple(value.shape) if isinstance(value, torch.Tensor) else value


BACK: dict[str, At] = {
    "freeze": {2: unfreeze("0"), 5: freeze("0")},
    "undo": {2: unfreeze("0"), 5: Undo},
    "drop": {2: unfreeze("0"), 5: lambda id_: SetTrainable(id_, "0", False, state="drop")},
    "twice": {2: unfreeze("0"), 4: freeze("0"), 5: unfreeze("0"), 7: Undo},
    "train only the rest": {2: unfreeze("0"), 5: lambda id_: TrainOnly(id_, "1,2")},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_checkpoint_is_the_scripts_own_again(name: str) -> None:
    """Of the form it has without any unfreeze, and it loads into the optimizer that the script makes at its beginning."""
    make = VARIANTS[name]
    model, optimizer, _ = trained(make, BACK["freeze"])
    assert shape(optimizer.state_dict()) == shape(by_itself(make).state_dict())
    fresh = stack()
    resumed = make([fresh[1].weight, fresh[2].weight])
    resumed.load_state_dict(optimizer.state_dict())
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == [id(model[1].weight), id(model[2].weight)]


@pytest.mark.parametrize("back", BACK)
def test_however_it_is_frozen_again(back: str) -> None:
    _, optimizer, _ = trained(VARIANTS["Adam"], BACK[back])
    assert shape(optimizer.state_dict()) == shape(by_itself(VARIANTS["Adam"]).state_dict())


# A fused SGD that has made its momentum buffers raises an error at a first gradient that comes later.
@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "fused SGD"])
def test_returning_model_goes_on_unchanged(name: str) -> None:
    """To the bit as a script that keeps it in its optimizer and switches `requires_grad`."""
    make = VARIANTS[name]
    model, _, _ = trained(make, {2: unfreeze("0"), 4: freeze("0"), 6: unfreeze("0")})
    written_in = stack()
    written_in[0].requires_grad_(False)
    optimizer = make([written_in[1].weight, written_in[2].weight, written_in[0].weight])
    for number in range(9):
        if number in (2, 4, 6):
            written_in[0].weight.requires_grad_(number != 4)
            written_in[0].weight.grad = None
        step(written_in, optimizer)
    assert bits(model) == bits(written_in)


def test_dropped_state_returns_with_undo_of_freeze() -> None:
    def drop(id_: int) -> SetTrainable:
        return SetTrainable(id_, "0", False, state="drop")

    make = VARIANTS["Adam"]
    kept, _, _ = trained(make, {2: unfreeze("0"), 4: freeze("0"), 6: unfreeze("0")})
    dropped, optimizer, _ = trained(make, {2: unfreeze("0"), 4: drop, 6: unfreeze("0")})
    undone, _, _ = trained(make, {2: unfreeze("0"), 4: drop, 6: Undo})
    assert optimizer.state[dropped[0].weight]["step"].item() == 3  # steps 6, 7 and 8
    assert bits(undone) == bits(kept) != bits(dropped)


def test_groups_and_their_lists_stay_the_same_objects() -> None:
    model = small()
    model[2].requires_grad_(False)
    with watched() as seen:
        groups = [{"params": list(model[0].parameters()), "lr": 0.2}, {"params": model[4].parameters(), "lr": 0.1}]
        optimizer = torch.optim.SGD(groups, momentum=0.9)
        before = [(id(group), id(group["params"])) for group in optimizer.param_groups]
        members = [[id(tensor) for tensor in group["params"]] for group in optimizer.param_groups]
        for number in range(6):
            if number in (1, 3):
                seen.submit(unfreeze("2") if number == 1 else Undo)
            step_of(model, optimizer)
    assert [(id(group), id(group["params"])) for group in optimizer.param_groups] == before
    assert [[id(tensor) for tensor in group["params"]] for group in optimizer.param_groups] == members


@pytest.mark.skipif(TORCH < (2, 6), reason="torch before 2.6 takes no named parameters")
def test_named_groups_lose_the_names_again() -> None:
    model = small()
    model[2].requires_grad_(False)
    with watched() as seen:
        optimizer = torch.optim.SGD([(n, p) for n, p in model.named_parameters() if p.requires_grad], lr=0.1)
        for number in range(4):
            if number in (1, 2):
                seen.submit(unfreeze("2") if number == 1 else Undo)
            step_of(model, optimizer)
    (group,) = optimizer.param_groups
    assert group["param_names"] == ["0.weight", "0.bias", "4.weight", "4.bias"]


def test_only_what_was_added_is_taken_out() -> None:
    """A parameter that the script has frozen in its own optimizer stays there, and so does what it adds itself."""
    model = small()
    model[0].requires_grad_(False)
    model[2].requires_grad_(False)
    extra = nn.Parameter(torch.ones(2))
    with watched() as seen:
        optimizer = torch.optim.Adam([*model[0].parameters(), *model[4].parameters()], lr=0.01)
        for number in range(6):
            if number in (1, 3):
                seen.submit(unfreeze("0") if number == 1 else Undo)
            if number == 4:
                seen.submit(unfreeze("2"))
            if number == 5:
                optimizer.add_param_group({"params": [extra]})
                seen.submit(Undo)
            step_of(model, optimizer)
    own = [*model[0].parameters(), *model[4].parameters(), extra]
    assert [id(tensor) for group in optimizer.param_groups for tensor in group["params"]] == [id(p) for p in own]


def test_arrangement_by_script_is_left_to_it() -> None:
    model = small()
    model[2].requires_grad_(False)
    with watched() as seen:
        optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.01)
        for number in range(5):
            if number in (1, 3):
                seen.submit(unfreeze("2") if number == 1 else freeze("2"))
            if number == 2:
                optimizer.param_groups[0]["params"] = [p for p in model.parameters() if p.requires_grad]
            step_of(model, optimizer)
    assert [id(tensor) for tensor in optimizer.param_groups[0]["params"]] == [id(p) for p in model.parameters()]
    assert "; 2 stay in Adam" in seen.answers()[1]
    optimizer.state_dict()


class Sharing(torch.optim.Optimizer):
    """Steps with another optimizer, whose groups are its own too, as SAM does."""

    def __init__(self, base: torch.optim.Optimizer) -> None:
        super().__init__(base.param_groups, {})
        self.base = base
        self.param_groups = base.param_groups

    def step(self) -> None:
        for group in self.param_groups:
            for tensor in group["params"]:
                if tensor.grad is not None:
                    self.state[tensor]["old"] = tensor.detach().clone()
        self.base.step()


def test_optimizer_sharing_groups_loses_state_too() -> None:
    _, optimizer, _ = trained(lambda p: Sharing(torch.optim.Adam(p, lr=0.01)), {2: unfreeze("0"), 5: freeze("0")})
    for each in (optimizer, optimizer.base):
        assert sorted(each.state_dict()["state"]) == [0, 1]
    _, optimizer, _ = trained(
        lambda p: Sharing(torch.optim.Adam(p, lr=0.01)), {2: unfreeze("0"), 4: freeze("0"), 6: unfreeze("0")}
    )
    for each in (optimizer, optimizer.base):
        assert sorted(each.state_dict()["state"]) == [0, 1, 2]


def test_state_aside_dies_with_parameter_and_optimizer() -> None:
    for whose in ("parameter", "optimizer"):
        model = stack()
        model[0].requires_grad_(False)
        with watched() as seen:
            optimizer = torch.optim.Adam([model[1].weight, model[2].weight])
            for number in range(6):
                if number in (1, 3):
                    seen.submit(unfreeze("0") if number == 1 else freeze("0"))
                step(model, optimizer)
                if number == 2:
                    state = weakref.ref(optimizer.state[model[0].weight]["exp_avg"])
            assert state() is not None
            if whose == "parameter":
                model[0].weight = nn.Parameter(torch.zeros(4, 4))
            else:
                del optimizer
            gc.collect()
            assert state() is None


def test_state_aside_is_optimizer_state_in_ledger() -> None:
    _, _, seen = trained(torch.optim.Adam, {2: unfreeze("0"), 5: freeze("0")})
    # Three matrices of 4 x 4 with two moments each, and three counters of steps.
    assert seen.ledgers(Phase.OPTIMIZER)[-1].held.optimizer_state == 3 * (2 * 16 * 4 + 4)


def test_the_receipt_says_what_the_checkpoint_holds() -> None:
    _, _, seen = trained(torch.optim.Adam, {2: unfreeze("0"), 5: freeze("0")})
    assert "; 1 joined Adam" in seen.answers()[0]
    assert "; 132 B of state" in seen.answers()[1]


def said(seen: Watched) -> list[tuple[int, str]]:
    return [(entry.step, entry.text) for entry in seen.state.log if entry.kind == "checkpoint"]


RESUME = [
    "Adam's state_dict() holds 3 parameters: 2 of the script and 1 that an unfreeze added (0.weight)",
    "a checkpoint of Adam loads only after the same unfreeze: resume with this run's schedule (--schedule), or freeze "
    "before the script saves",
]


def test_additions_are_told_with_content_of_checkpoint() -> None:
    weights = "the script's checkpoint holds the trained weights of 0.weight only if it saves the modules that own them"
    all_of_them = 'the command save_checkpoint saves the weights of all models: torch.load(FILE)["models"]'
    frozen = weights.replace("0.weight", "0.weight (trained while unfrozen, frozen again)")
    _, _, seen = trained(torch.optim.Adam, {2: unfreeze("0")})
    assert said(seen) == [(2, line) for line in (*RESUME, weights, all_of_them)]
    assert report_of(seen.state)[-4:] == [*RESUME, weights, all_of_them]
    _, _, seen = trained(torch.optim.Adam, BACK["undo"])
    assert said(seen)[4:] == [(5, frozen)]
    assert report_of(seen.state)[-2:] == [frozen, all_of_them]
    assert not {*RESUME} & {*report_of(seen.state)}
    _, _, seen = trained(torch.optim.Adam, {2: freeze("1"), 4: unfreeze("1")})
    assert said(seen) == []


def test_untrained_is_not_told_to_have_trained() -> None:
    _, _, seen = trained(torch.optim.Adam, {2: lambda id_: SetTrainable(id_, "0", True), 3: freeze("0")}, steps=9)
    assert len(said(seen)) == 5
    model = stack()
    model[0].requires_grad_(False)
    with watched() as seen:
        optimizer = torch.optim.Adam([model[1].weight, model[2].weight])
        for number in range(4):
            if number == 2:
                seen.submit(unfreeze("0"))
                seen.submit(Undo)
            step(model, optimizer)
    assert said(seen) == []


def test_summary_has_additions_and_outside_training() -> None:
    _, _, seen = trained(torch.optim.Adam, {2: unfreeze("0")})
    found = summarised(seen.state)["freezes"]
    assert found["added_to_optimizers"] == [{"optimizer": "Adam", "own": 2, "added": ["0.weight"]}]
    assert found["trained_and_taken_out"] == []
    _, _, seen = trained(torch.optim.Adam, BACK["freeze"])
    found = summarised(seen.state)["freezes"]
    assert found["added_to_optimizers"] == []
    assert found["trained_and_taken_out"] == ["0.weight"]
