"""The walks through modules find what torch's own methods find, and call nothing that a class of the script may replace."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from helpers.watched import watched
from torch import nn
from torch.utils.data import DataLoader
from zoo import SPECIMENS

from gradtui.probe.torch_private import module_walk

METHODS = (
    "parameters", "named_parameters", "buffers", "named_buffers", "modules", "named_modules", "children", "named_children",
    "_named_members", "get_parameter", "get_submodule", "__dir__", "__repr__", "_get_name", "extra_repr",
)  # fmt: skip
calls: Counter[str] = Counter()


def _counted(name: str) -> Any:
    def method(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        return getattr(nn.Module, name)(self, *args, **kwargs)

    return method


class Chatty(nn.Module):
    """A model that notes each call of what it replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.1), nn.Linear(4, 1)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x

    def __hash__(self) -> int:
        calls["__hash__"] += 1
        return id(self)

    def __eq__(self, other: object) -> bool:
        calls["__eq__"] += 1
        return self is other

    def __bool__(self) -> bool:
        calls["__bool__"] += 1
        return False

    def __len__(self) -> int:
        calls["__len__"] += 1
        return 0

    locals().update({name: _counted(name) for name in METHODS})


def _train() -> Counter[str]:
    calls.clear()
    model = Chatty()
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(list(torch.linspace(-1, 1, 36).view(12, 3)), batch_size=2)
    for _ in range(3):
        model.train()
        for batch in loader:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            average.update_parameters(model)
        model.eval()
        for batch in loader:
            model(batch)
        with torch.no_grad():
            for batch in loader:
                model(batch)
        model.load_state_dict(model.state_dict())
    return Counter(calls)


def test_watched_run_calls_no_method_more_often() -> None:
    alone = _train()
    with watched(budget=1.0):
        seen = _train()
    assert seen == alone


@pytest.mark.parametrize("name", SPECIMENS)
def test_walks_are_those_of_torch(name: str) -> None:
    root = SPECIMENS[name]().model
    assert [*map(id, module_walk.modules_of(root))] == [*map(id, root.modules())]
    assert [*map(id, module_walk.parameters_of(root))] == [*map(id, root.parameters())]
    for once in (True, False):
        for kind in ("named_modules", "named_parameters", "named_buffers"):
            ours = [(path, id(each)) for path, each in getattr(module_walk, kind)(root, remove_duplicate=once)]
            assert ours == [(path, id(each)) for path, each in getattr(root, kind)(remove_duplicate=once)], kind


def test_a_module_within_itself_ends() -> None:
    root = nn.Sequential(nn.Linear(1, 1))
    root.add_module("again", root)
    for once in (True, False):
        assert [path for path, _ in module_walk.named_modules(root, remove_duplicate=once)] == ["", "0"]
