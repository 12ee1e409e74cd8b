"""Before torch 2.10 what a graph keeps cannot be read where hooks were set: it is unknown, and not zero."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers.watched import watched
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gradtui.probe.sampling import sampled_step
from gradtui.probe.torch_private import unshown_tensors
from gradtui.probe.torch_private.private_names import saved_data, saved_tensors
from gradtui.protocol.events import SavedBytesMeasured


def test_unreadable_is_not_reported_as_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled_step, "are_readable", lambda: False)
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    assert not seen.all(SavedBytesMeasured)
    assert set(seen.letters().values()) == {"T"}


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(x, factor)
        return x * factor

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.saved_tensors[1], None


def kept(output: Tensor) -> list[list[int | None]]:
    """The storage of each tensor that each operation of a chain keeps."""
    found, node = [], output.grad_fn
    while node is not None:
        data = [saved_data(each) for each in saved_tensors(node)]
        found.append([each.untyped_storage().data_ptr() if each is not None else None for each in data])
        node = next((before for before, _ in node.next_functions if before is not None), None)
    return found


def test_unpacked_tensors_are_those_torch_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    x, factor = torch.ones(3, requires_grad=True), torch.tensor(2.0)
    inner = Doubled.apply(x, factor)
    outer = inner.exp()
    output = torch.cat([outer, outer])[torch.tensor([0, 1])].square().sum()
    monkeypatch.setattr(unshown_tensors, "ARE_SHOWN", False)
    unshown_tensors.watching(lambda *_: None)
    unpacked = kept(output)
    pointers = [each.untyped_storage().data_ptr() for each in (x, factor, outer)]
    assert unpacked[-2] == pointers[:2]
    assert [pointers[2]] in unpacked
    if hasattr(torch._C._autograd.SavedTensor, "unpack_hook"):
        monkeypatch.undo()
        assert unpacked == kept(output)
    output.backward()
    assert x.grad is not None


def test_from_the_first_hook_on_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading what a checkpointed forward has saved would run it again."""
    monkeypatch.setattr(unshown_tensors, "ARE_SHOWN", False)
    model, forwards = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), 0
    push = torch._C._autograd._push_saved_tensors_default_hooks

    def forward(x: Tensor) -> Tensor:
        nonlocal forwards
        forwards += 1
        return model(x)

    with watched(budget=1e6) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(4):
            x = torch.ones(1, 2)
            (checkpoint(forward, x, use_reentrant=False) if number > 1 else forward(x)).sum().backward()
            optimizer.step()
    assert {event.step for event in seen.all(SavedBytesMeasured)} == {1, 2}
    # Two steps call it twice.
    assert (forwards, torch._C._autograd._push_saved_tensors_default_hooks) == (6, push)
