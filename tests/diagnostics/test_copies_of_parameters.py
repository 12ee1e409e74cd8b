"""GT106 and GT107 where the optimizer has other tensors than the parameters: copies, one flat tensor, parts, free tensors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from rule_runs import state_after
from torch import nn


def net(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).to(dtype)


def loss_of(model: nn.Module, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return model(torch.randn(8, 8, dtype=dtype)).float().pow(2).mean()


def float32_copies(learning_rate: float, *, through_data: bool) -> None:
    model = net(torch.bfloat16)
    copies = [nn.Parameter(each.detach().float()) for each in model.parameters()]
    optimizer = torch.optim.AdamW(copies, lr=learning_rate)
    for copy in copies:
        copy.grad = torch.zeros_like(copy)
    for _ in range(12):
        model.zero_grad()
        loss_of(model, torch.bfloat16).backward()
        for copy, each in zip(copies, model.parameters()):
            copy.grad.data.copy_(each.grad.data)  # type: ignore[union-attr]
        optimizer.step()
        for copy, each in zip(copies, model.parameters()):
            if through_data:
                each.data.copy_(copy.data)
            else:
                with torch.no_grad():
                    each.copy_(copy)


def one_flat_tensor() -> None:
    model = net()
    parameters = list(model.parameters())
    flat = nn.Parameter(torch.cat([each.detach().view(-1) for each in parameters]))
    for each, piece in zip(parameters, flat.detach().split([each.numel() for each in parameters])):
        each.data = piece.view_as(each)
    optimizer = torch.optim.Adam([flat], lr=0.01)
    for _ in range(12):
        model.zero_grad()
        loss_of(model).backward()
        flat.grad = torch.cat([each.grad.view(-1) for each in parameters if each.grad is not None])
        optimizer.step()


def an_optimizer_for_each_part() -> None:
    model = net()
    parameters = list(model.parameters())
    parts = [each.clone().requires_grad_() for each in nn.utils.parameters_to_vector(parameters).detach().chunk(4)]
    optimizers = [torch.optim.Adam([part], lr=0.01) for part in parts]
    for _ in range(12):
        model.zero_grad()
        loss_of(model).backward()
        gradient = torch.cat([each.grad.view(-1) for each in parameters if each.grad is not None])
        for part, piece, optimizer in zip(parts, gradient.chunk(4), optimizers):
            part.grad = piece
            optimizer.step()
        nn.utils.vector_to_parameters(torch.cat([part.detach() for part in parts]), parameters)


def a_loop_of_its_own_beside_an_optimizer() -> None:
    model, head = net(), nn.Linear(4, 4)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.01)
    for _ in range(12):
        model.zero_grad()
        optimizer.zero_grad()
        head(model(torch.randn(8, 8))).pow(2).mean().backward()
        optimizer.step()
        for each in model.parameters():
            each.data.sub_(each.grad, alpha=0.01)  # type: ignore[arg-type]


MOVED: dict[str, Callable[[], None]] = {
    "copies": lambda: float32_copies(1e-2, through_data=True),
    "copies without .data": lambda: float32_copies(1e-2, through_data=False),
    "copies that hardly move": lambda: float32_copies(1e-5, through_data=True),
    "one flat tensor": one_flat_tensor,
    "an optimizer for each part": an_optimizer_for_each_part,
    "a loop of its own": a_loop_of_its_own_beside_an_optimizer,
}


@pytest.mark.parametrize("name", MOVED)
def test_parameters_moved_by_script_are_not_left_out(name: str) -> None:
    state = state_after(MOVED[name])
    assert {each.rule for each in state.findings} & {"GT106", "GT107"} == set()
    assert set(state.tree.states) == {"T"}


@pytest.mark.parametrize("replaced_after", [0, 5])
def test_a_head_replaced_beside_a_free_tensor(replaced_after: int) -> None:
    def train() -> None:
        model, scale = net(), nn.Parameter(torch.ones(()))
        optimizer = torch.optim.Adam([*model.parameters(), scale], lr=0.01)
        for step in range(15):
            if step == replaced_after:
                model[2] = nn.Linear(16, 4)
            # The gradients of the old head stay.
            model.zero_grad()
            scale.grad = None
            (loss_of(model) * scale).backward()
            optimizer.step()

    (found,) = [each for each in state_after(train).findings if each.rule in ("GT106", "GT107")]
    assert (found.rule, found.evidence["tensors_of_no_module"], found.evidence["tensors_in_no_optimizer"]) == (
        "GT107",
        2,
        2,
    )


def test_a_second_model_in_no_optimizer_beside_copies() -> None:
    def train() -> None:
        model, second = net(), nn.Linear(4, 64)
        copies = [each.detach().clone().requires_grad_() for each in model.parameters()]
        optimizer = torch.optim.Adam(copies, lr=0.01)
        for _ in range(15):
            model.zero_grad()
            second(model(torch.randn(8, 8))).pow(2).mean().backward()
            for copy, each in zip(copies, model.parameters()):
                copy.grad = each.grad
            optimizer.step()
            with torch.no_grad():
                for copy, each in zip(copies, model.parameters()):
                    each.copy_(copy)

    (found,) = [each for each in state_after(train).findings if each.rule in ("GT106", "GT107")]
    assert (found.rule, found.paths) == ("GT106", ("Linear.weight", "Linear.bias"))
