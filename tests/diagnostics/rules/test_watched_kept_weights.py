"""GT120 under the probe: kept states that are the live weights."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from helpers.matches_after import matches_after
from torch import Tensor, nn

from gradtui.run.diagnostics import Match
from gradtui.run.state.findings import Level

States = Mapping[str, Tensor]


def steps(model: nn.Module, count: int = 8) -> None:
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(count):
        model(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def found(keep: Callable[[States], States], use: Callable[[nn.Module, States], Any]) -> list[Match]:
    def train() -> None:
        model = nn.Linear(4, 2)
        steps(model)
        best = keep(model.state_dict())
        steps(model)
        use(model, best)

    return matches_after("GT120", train)


def load(model: nn.Module, best: States) -> None:
    model.load_state_dict(best)


def save(_: nn.Module, best: States) -> None:
    torch.save({"model": best, "epoch": 3}, io.BytesIO())


def leave(_: nn.Module, best: States) -> None:
    pass


def filtered(state: States) -> States:
    return {key: value for key, value in state.items()}  # noqa: C416 - as scripts write it


def saved_at_once(state: States) -> States:
    torch.save(state, io.BytesIO())
    return state


def cloned(state: States) -> States:
    return {key: value.clone() for key, value in state.items()}


@pytest.mark.parametrize("keep", [lambda state: state, filtered])
@pytest.mark.parametrize(("use", "how"), [(load, "loaded"), (save, "saved")])
def test_used_later(keep: Callable[[States], States], use: Callable[[nn.Module, States], Any], how: str) -> None:
    (match,) = found(keep, use)
    assert (match.evidence["how"], match.evidence["tensors"], match.evidence["made_step"]) == (how, 2, 8)
    assert match.level is None
    assert match.site.file == __file__


def test_only_kept() -> None:
    (match,) = found(lambda state: state, leave)
    assert match.level is Level.WARNING
    assert match.message.startswith("best, the 2 tensors")


@pytest.mark.parametrize("use", [load, save, leave])
@pytest.mark.parametrize("keep", [copy.deepcopy, cloned])
def test_copies(keep: Callable[[States], States], use: Callable[[nn.Module, States], Any]) -> None:
    assert found(keep, use) == []


def test_saved_at_once() -> None:
    assert found(saved_at_once, leave) == []


def test_the_last_state_is_the_best() -> None:
    """It is no checkpoint of which a filter has left nothing."""

    def train() -> None:
        model = nn.Linear(4, 2)
        steps(model, 6)
        best_state = model.state_dict()
        model.load_state_dict(best_state)
        steps(model, 3)

    assert matches_after("GT116", train) == []


def test_a_view_that_is_used_on_purpose() -> None:
    """Of the present weights: for a copy of the model, and to write to them."""

    def train() -> None:
        model = nn.Linear(4, 2)
        view, other = model.state_dict(), copy.deepcopy(model)
        for _ in range(3):
            steps(model, 3)
            other.load_state_dict(view)
            torch.save(view, io.BytesIO())
            now = model.state_dict()
            for each in now.values():
                each.mul_(0.9)
            model.load_state_dict(now)

    assert matches_after("GT120", train) == []
    assert matches_after("GT116", train) == []
