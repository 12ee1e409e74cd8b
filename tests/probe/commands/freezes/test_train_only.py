"""`TrainOnly`: what it names trains, the rest is frozen, as one change."""

from __future__ import annotations

import torch
from helpers.toggling import bits, freeze, small, step
from helpers.watched import watched
from torch import nn

from gradtui.protocol.commands import TrainOnly, Undo
from gradtui.protocol.events import CommandApplied, CommandRejected


def train_only(selection: str):
    return lambda id_: TrainOnly(id_, selection)


def flags(model: nn.Module) -> dict[str, bool]:
    return {name: parameter.requires_grad for name, parameter in model.named_parameters()}


def test_what_is_named_trains_and_rest_holds_still() -> None:
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with watched() as seen:
        step(model, optimizer)
        seen.submit(train_only(":head"))
        step(model, optimizer, to_none=False)
        before = bits(model)
        for _ in range(3):
            step(model, optimizer, to_none=False)
    after = bits(model)
    assert {name for name in before if before[name] != after[name]} == {"4.weight", "4.bias"}
    assert len(seen.answers()) == 1
    assert seen.all(CommandApplied)[0].changed[-1].paths == ("0.weight", "0.bias", "2.weight", "2.bias")


def test_statistics_held_and_collected_are_counted() -> None:
    layers = [
        nn.Linear(4, 6),
        nn.BatchNorm1d(6),
        nn.Linear(6, 6),
        nn.BatchNorm1d(6),
        nn.BatchNorm1d(6),
        nn.Linear(6, 1),
    ]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with watched() as seen:
        step(model, optimizer)
        seen.submit(train_only("0, 1"))
        step(model, optimizer)
        seen.submit(train_only("3, 4, 5"))
        step(model, optimizer)
    first, second = seen.answers()
    assert "; froze 8; 2 BatchNorm1d modules hold" in first
    assert "; unfroze 6, froze 4; 2 BatchNorm1d" in second
    assert "; 1 BatchNorm1d module " in second


def test_undo_restores_freeze_of_rest_and_unfreeze() -> None:
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with watched() as seen:
        step(model, optimizer)
        seen.submit(freeze("0"))
        step(model, optimizer)
        before = flags(model)
        seen.submit(train_only("0, 2.bias"))
        step(model, optimizer)
        assert flags(model) == {name: name in ("0.weight", "0.bias", "2.bias") for name in before}
        seen.submit(Undo)
        step(model, optimizer)
        assert flags(model) == before
        seen.submit(Undo)
        step(model, optimizer)
    assert all(flags(model).values())
    applied = seen.all(CommandApplied)
    assert [(change.trainable, change.paths) for change in applied[1].changed] == [
        (True, ("0.weight", "0.bias")),
        (False, ("2.weight", "4.weight", "4.bias")),
    ]
    assert applied[2].text.split(": ")[0] == "unfroze all but 0, 2.bias"
    assert "; froze 0, 2.bias: 2 tensors" in applied[2].text


def test_unfreezable_rest_leaves_everything() -> None:
    model = small()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD([*model[2].parameters(), *model[4].parameters()], lr=0.1)
    before = flags(model)
    groups = [len(group["params"]) for group in optimizer.param_groups]
    with watched() as seen:
        step(model, optimizer)
        # Backward stops before it: whether it would get a gradient is not known before a step has shown it.
        seen.submit(train_only("0"))
        step(model, optimizer)
    (rejected,) = seen.all(CommandRejected)
    assert "loss.backward() would fail" in rejected.reason
    assert flags(model) == before
    assert all(parameter.grad is None for parameter in model[0].parameters())
    assert groups == [4]
    assert seen.all(CommandApplied) == []


def test_redundant_and_missing_names_are_said() -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched() as seen:
        step(model, optimizer)
        for selection in (":all", ":norms", "*.wieght", "4.wait", ":heads"):
            seen.submit(train_only(selection))
        step(model, optimizer)
    answers = seen.answers()
    assert [answer.split(maxsplit=1)[0] for answer in answers[:2]] == [":all", ":norms:"]
    assert "nothing matches '*.wieght'" in answers[2]
    assert "did you mean 4.weight" in answers[3]
    assert "did you mean :head?" in answers[4]
