"""Attributes such as `requires_grad` of modules, and misspelt ones, are found; other attributes are not."""

from __future__ import annotations

import pytest
import torch
from helpers.watched import watched
from torch import nn

from gradtui.protocol.events import FlagsFound, PlainFlag


class Encoder(nn.Linear):
    """Reads its flag: it is about the inputs."""

    requires_grad: bool

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs.requires_grad_(self.requires_grad))


class Frozen(nn.Linear):
    """Assigns a flag to itself, and reads those of its parameters."""

    def __init__(self, width: int) -> None:
        super().__init__(width, width)
        self.requires_grad = any(each.requires_grad for each in self.parameters())


def flags_of(encoder: nn.Module) -> list[PlainFlag]:
    with watched() as seen:
        model = nn.Sequential(encoder, nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()
        events = seen.all(FlagsFound)
    assert len(events) <= 1
    return [flag for event in events for flag in event.flags]


@pytest.mark.parametrize("name", ["requires_grad", "require_grad", "required_grad", "requires_gradient", "trainable"])
def test_a_flag_of_a_module(name: str) -> None:
    encoder = nn.Linear(4, 4)
    setattr(encoder, name, False)
    assert flags_of(encoder) == [PlainFlag(name, value=False, module=1, parameter=-1)]


@pytest.mark.parametrize("name", ["requires_grads", "require_grad", "requires_grad_"])
def test_a_flag_of_a_parameter(name: str) -> None:
    encoder = nn.Linear(4, 4)
    setattr(encoder.weight, name, False)
    assert flags_of(encoder) == [PlainFlag(name, value=False, module=-1, parameter=0)]


def test_the_code_of_a_class() -> None:
    own, written = Encoder(4, 4), Frozen(4)
    own.requires_grad = False
    assert flags_of(own) == []
    assert flags_of(written) == [PlainFlag("requires_grad", value=True, module=1, parameter=-1, is_set_by_class=True)]


def test_other_attributes() -> None:
    encoder = nn.Linear(4, 4)
    encoder.require_backward_grad_sync = False
    encoder.weight.sequence_parallel = False  # type: ignore[attr-defined]
    encoder.requires_grad = None
    assert flags_of(encoder) == []
