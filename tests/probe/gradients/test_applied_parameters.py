"""What is kept of the parameters of an optimizer, and when it is looked up again."""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import pytest
import torch
from helpers.watched import watched
from torch import Tensor, nn

from gradtui.probe.gradients.applied_parameters import AppliedParameters


class Leaf:
    """Has a gradient as a parameter has. A real one on the CPU takes no gradient of another device."""

    def __init__(self, grad: Tensor | None) -> None:
        self.grad = grad


class Stub:
    """An optimizer that steps nothing."""

    def __init__(self, parameters: list[Leaf]) -> None:
        self.param_groups = [{"params": parameters}]


def registry(parameters: list[Leaf]) -> SimpleNamespace:
    index = {id(parameter): number for number, parameter in enumerate(parameters)}
    refs = [weakref.ref(parameter) for parameter in parameters]
    return SimpleNamespace(tree=SimpleNamespace(listing=1, parameter_index=index, parameter_refs=refs))


@pytest.mark.parametrize("others", [{"device": "meta"}, {"dtype": torch.float64}])
def test_gradients_changed_in_place_are_looked_at_again(others: dict[str, object]) -> None:
    parameters = [Leaf(torch.ones(2)), Leaf(None), Leaf(torch.ones(3))]
    optimizer, applied = Stub(parameters), AppliedParameters(registry(parameters))
    known, gradients = applied.dense_gradients(optimizer)
    assert known.groups is not None
    assert (known.indices, known.absent, len(gradients)) == ([0, 2], [1], 2)
    assert applied.dense_gradients(optimizer)[0] is known, "it is kept while nothing has changed"
    parameters[2].grad = torch.ones(3).to(**others)
    moved, _ = applied.dense_gradients(optimizer)
    assert (moved.indices, moved.absent) == ([0, 2], [1])
    if "device" in others:
        assert moved.groups is None, "its norm cannot be read at once"
    else:
        assert moved.groups is not None
        assert len(moved.groups) == 2
    parameters[2].grad = torch.ones(3)
    back, _ = applied.dense_gradients(optimizer)
    assert back.groups is not None
    assert len(back.groups) == 1


def test_parameters_on_another_device_remain_in_optimizer() -> None:
    """`nn.Module.to` makes new parameters where a tensor cannot move in place."""
    model = nn.Linear(2, 1)
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        applied = seen.probe.norms.buffered.applied
        assert applied.dense_gradients(optimizer)[0].groups is not None
        moved = nn.Linear(2, 1, device="meta")
        for parameter in moved.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.param_groups[0]["params"] = list(moved.parameters())
        known, gradients = applied.dense_gradients(optimizer)
        assert known.groups is None
        assert {gradient.device.type for gradient in gradients} == {"meta"}
        assert [parameter.device.type for _, parameter in applied.of(optimizer)] == ["meta", "meta"]
        assert {index for index, _ in applied.of(optimizer)} == {-1}, "no listed model has them"
