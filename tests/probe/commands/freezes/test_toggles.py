"""A toggle: equal to a script that does the same, applied between iterations, and answered once."""

from __future__ import annotations

import copy

import pytest
import torch
from helpers.examples import combinations
from helpers.toggling import Make, X, ask, bits, freeze, small, step, unfreeze
from helpers.watched import watched
from torch import Tensor, nn

from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.events import CommandApplied, CommandRejected, ProbeFailed

OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "foreach": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.01, foreach=True),
}


def scripted(
    base: nn.Module, make: Make, changes: dict[int, tuple[str, bool]], *, to_none: bool
) -> dict[str, list[float]]:
    """A training whose source freezes and unfreezes at the beginning of given steps."""
    model = copy.deepcopy(base)
    optimizer = make(model.parameters())
    for number in range(10):
        if number in changes:
            path, trainable = changes[number]
            for parameter in model.get_submodule(path).parameters():
                parameter.requires_grad_(trainable)
                parameter.grad = None
        step(model, optimizer, to_none=to_none)
    return bits(model)


@pytest.mark.parametrize(("optimizer", "to_none"), combinations(OPTIMIZERS, [True, False]))
def test_toggle_at_step_is_same_script_to_bit(optimizer: str, to_none: bool) -> None:
    base, make = small(), OPTIMIZERS[optimizer]
    changes = {3: ("2", False), 6: ("2", True)}
    model = copy.deepcopy(base)
    with watched() as seen:
        made = make(model.parameters())
        for number in range(10):
            if number in changes:
                path, trainable = changes[number]
                seen.submit(lambda id_, p=path, t=trainable: SetTrainable(id_, p, t))
            step(model, made, to_none=to_none)
    assert bits(model) == scripted(base, make, changes, to_none=to_none)
    assert bits(model) != scripted(base, make, {}, to_none=to_none)
    assert [event.step for event in seen.all(CommandApplied)] == [3, 6]
    assert [event.parameters for event in seen.all(CommandApplied)] == [(2, 3), (2, 3)]


def test_a_toggle_waits_for_the_end_of_accumulation() -> None:
    model = small()
    micro_steps, step_of = 4, []
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(12):
            if number == 5:  # the second micro-step of the second step
                seen.submit(freeze("0"))
            model(X).square().mean().backward()
            step_of.append(model[0].weight.requires_grad)
            if number % micro_steps == micro_steps - 1:
                assert all(p.grad is not None for p in model.parameters()) == step_of[-1]
                optimizer.step()
                optimizer.zero_grad()
    assert step_of == [True] * 8 + [False] * 4
    assert [event.step for event in seen.all(CommandApplied)] == [2]


def test_a_toggle_never_falls_between_forward_and_backward() -> None:
    """A criterion is a module too; what is asked for while the model runs waits for the next step."""
    model, criterion = small(), nn.MSELoss()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            output = model(X)
            if not seen.all(CommandApplied):
                seen.submit(freeze("0"))
            loss = criterion(output, torch.zeros_like(output))
            assert model[0].weight.requires_grad == (not seen.all(CommandApplied))
            loss.backward()
            optimizer.step()
    assert [event.step for event in seen.all(CommandApplied)] == [1]


def test_toggle_within_closure_step_waits_for_next() -> None:
    model = small()
    seen_inside: list[bool] = []
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def closure() -> Tensor:
            optimizer.zero_grad()
            if len(seen_inside) == 1:
                seen.submit(freeze("0"))
            loss = model(X).square().mean()
            loss.backward()
            seen_inside.append(model[0].weight.requires_grad)
            return loss

        for _ in range(4):
            optimizer.step(closure)  # type: ignore[arg-type]
    assert seen_inside == [True, True, False, False]
    assert [event.step for event in seen.all(CommandApplied)] == [2]


def test_a_toggle_under_optimizers_that_step_within_backward() -> None:
    """Their steps are no boundary while backward still runs."""
    model = small()
    optimizers = {p: torch.optim.SGD([p], lr=0.1, momentum=0.9) for p in model.parameters()}

    def hook(parameter: Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()
        if not seen.commands and not seen.all(CommandApplied) and len(rounds) == 2:
            seen.submit(freeze("2"))

    rounds: list[dict[str, list[float]]] = []
    with watched() as seen:
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(hook)
        for _ in range(5):
            model(X).square().mean().backward()
            rounds.append(bits(model))
    (applied,) = seen.all(CommandApplied)
    assert applied.step == 3 * len(optimizers)
    assert rounds[2]["2.weight"] == rounds[3]["2.weight"] == rounds[4]["2.weight"]
    assert rounds[3]["0.weight"] != rounds[4]["0.weight"]


def test_one_parameter_and_the_whole_model() -> None:
    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer)
        for make in (freeze("0.bias"), freeze("0"), unfreeze(""), unfreeze("")):
            seen.submit(make)
        step(model, optimizer)
    assert seen.answers() == [
        "froze 0.bias: 1 tensor, 8 parameters",
        "froze 0: 1 tensor, 32 parameters",
        "unfroze the model: 2 tensors, 40 parameters",
        "the model is already trainable",
    ]


def test_old_gradient_is_not_added_to_new() -> None:
    """The script froze by hand and left the gradient where it was."""
    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        step(model, optimizer)
        model[2].requires_grad_(False)
        model[2].weight.grad = torch.full((8, 8), 7.0)
        optimizer.zero_grad = lambda set_to_none=True: None  # type: ignore[method-assign]
        model[4].weight.grad = model[4].bias.grad = None
        seen.submit(unfreeze("2"))
        model(X).square().mean().backward()
        fresh = model[2].weight.grad.clone()  # type: ignore[union-attr]
        model.zero_grad()
        model(X).square().mean().backward()
    assert torch.equal(fresh, model[2].weight.grad)  # type: ignore[arg-type]


def test_gradient_kept_as_zeros_is_let_go() -> None:
    """It would still move the weight, by momentum and weight decay."""
    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
        for number in seen.steps(6, {3: freeze("2")}):
            optimizer.zero_grad(set_to_none=False)
            model(X).square().mean().backward()
            assert (model[2].weight.grad is None) == (number >= 3)
            optimizer.step()


def test_a_toggle_whose_aftermath_fails_is_answered_once() -> None:
    """It was applied; what goes wrong in telling about it is no second answer."""
    model = small()
    with watched(may_fail=True) as seen:

        def broken(*arguments: object) -> None:
            raise ZeroDivisionError("oops")

        seen.probe.step_sampler.toggled = broken  # type: ignore[method-assign]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(4):
            if number == 1:
                seen.submit(freeze("0"))
                seen.submit(freeze("2"))
            step(model, optimizer)
    assert seen.answers() == ["froze 0: 2 tensors, 40 parameters", "froze 2: 2 tensors, 72 parameters"]
    assert [failure.part for failure in seen.all(ProbeFailed)] == ["commands"] * 2, "one for each of the two"


def test_toggles_in_one_boundary_keep_their_order() -> None:
    model = small()
    orders = [freeze("0"), unfreeze("0.bias"), freeze("2"), freeze("0"), unfreeze("0"), freeze("nine"), unfreeze("2")]
    seen = ask(model, torch.optim.SGD(model.parameters(), lr=0.1), {4: orders})
    told = [event.command.id for event in seen.events if isinstance(event, (CommandApplied, CommandRejected))]
    assert told == list(range(1, len(orders) + 1))
    assert [answer.split()[0] for answer in seen.answers()] == [
        "froze", "unfroze", "froze", "froze", "unfroze", "there", "unfroze",
    ]  # fmt: skip
    assert all(p.requires_grad for p in model.parameters())
    assert seen.state.pending == {}
    assert seen.state.tree.trainable == "111111"


def test_freeze_says_what_optimizer_keeps_of_it() -> None:
    model = small()
    with watched() as seen:
        optimizer = torch.optim.Adam(model.parameters())
        step(model, optimizer)
        for path in ("0", "2.bias"):
            seen.submit(freeze(path))
            step(model, optimizer)
    sizes = {
        path: sum(value.nbytes for p in parameters for value in optimizer.state[p].values())
        for path, parameters in {"0": [*model[0].parameters()], "2.bias": [model[2].bias]}.items()
    }
    assert f" {sizes['0']} B" in seen.answers()[0]
    assert f" {sizes['2.bias']} B" in seen.answers()[1]
