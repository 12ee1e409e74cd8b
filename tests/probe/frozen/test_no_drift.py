"""No optimizer of torch's moves what is frozen, in none of its forms, however gradients are cleared: to the bit."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from helpers.examples import combinations, nightly
from helpers.toggling import X, freeze
from helpers.watched import watched
from torch import Tensor, nn

from gradtui.protocol.events import FreezeVerified
from gradtui.run.text import refusals

EVERY = {
    name: kind
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
}


def model_for(name: str) -> nn.Module:
    torch.manual_seed(0)
    if name == "SparseAdam":
        return nn.Sequential(nn.EmbeddingBag(6, 4, sparse=True), nn.EmbeddingBag(6, 4, sparse=True))
    # Muon takes matrices only.
    return nn.Sequential(nn.Linear(4, 8, bias=name != "Muon"), nn.Tanh(), nn.Linear(8, 2, bias=name != "Muon"))


def loss_of(name: str, model: nn.Module) -> Tensor:
    if name == "SparseAdam":
        words = torch.arange(6).view(2, 3)
        return (model[0](words) + model[1](words)).square().mean()
    return model(X).square().mean()


def forms() -> list[tuple[str, dict[str, Any]]]:
    """Every optimizer as it is, in its foreach and fused form, and with weight decay and momentum where it has any."""
    found: list[tuple[str, dict[str, Any]]] = []
    for name, kind in sorted(EVERY.items()):
        accepted = inspect.signature(kind.__init__).parameters
        more = {"weight_decay": 0.1, "momentum": 0.9, "amsgrad": True, "nesterov": True, "centered": True}
        if name == "SparseAdam":
            more = {}
        more = {option: value for option, value in more.items() if option in accepted}
        for form in ({}, {"foreach": True}, {"fused": True}):
            if all(option in accepted for option in form):
                found += [(name, dict(form)), (name, {**form, **more})] if more else [(name, dict(form))]
    return found


def test_every_optimizer_is_here() -> None:
    """What torch's own optimizers were when this was written, at least; a new one is in `forms` by itself."""
    names = {name for name, _ in forms()}
    assert {
        "SGD",
        "Adam",
        "AdamW",
        "NAdam",
        "RAdam",
        "RMSprop",
        "Rprop",
        "Adagrad",
        "Adadelta",
        "Adamax",
        "ASGD",
    } <= names
    assert ("SGD", {"fused": True, "weight_decay": 0.1, "momentum": 0.9, "nesterov": True}) in forms()


@pytest.mark.parametrize(("form", "to_none"), combinations(forms(), [True, False]), ids=str)
def test_nothing_drifts(form: tuple[str, dict[str, Any]], to_none: bool) -> None:
    name, options = form
    model = model_for(name)
    with watched() as seen:
        optimizer = EVERY[name](model.parameters(), **options)
        needs_closure = name == "LBFGS"

        def one() -> None:
            def closure() -> Tensor:
                optimizer.zero_grad(set_to_none=to_none)
                value = loss_of(name, model)
                value.backward()
                return value

            if needs_closure:
                optimizer.step(closure)
            else:
                closure()
                optimizer.step()

        for _ in range(3):
            one()
        seen.submit(freeze("0"))
        held = {key: value.clone() for key, value in model[0].state_dict().items()}
        last = model[len(model) - 1]
        moving = last.weight.detach().clone()
        for _ in range(nightly(12, 20)):
            one()
    if name == "LBFGS":
        assert refusals.LBFGS_MOVES_FROZEN in seen.answers()[0]
        assert model[0].weight.requires_grad
        return
    assert seen.answers()[0].startswith("froze 0")
    assert all(torch.equal(value, held[key]) for key, value in model[0].state_dict().items())
    assert not torch.equal(last.weight, moving)
    (verified,) = seen.all(FreezeVerified)
    assert (verified.parameters, verified.steps, verified.moved) == (len(held), 10, ())
