"""A module without parameters that several modules have: what it computes belongs to the module that calls it."""

from __future__ import annotations

import pytest
import torch
from helpers.explained import short
from helpers.training import square_step
from helpers.watched import watched
from torch import Tensor, nn

from gradtui.run.state.backward.frontier import frontier
from gradtui.run.state.selectors import saved_bytes


class Conv(nn.Module):
    act = nn.SiLU()

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.conv, self.act = nn.Conv2d(channels, out, 3, padding=1), Conv.act

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.conv(x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body, self.head = Conv(3, 4), nn.Sequential(Conv(4, 6), Conv(6, 6)), nn.Linear(6, 2)
        self.stem.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.stem(x)).mean((2, 3)))


def test_a_shared_activation_is_charged_to_its_callers() -> None:
    torch.manual_seed(0)
    net = Net()
    with watched() as seen:
        optimizer = torch.optim.SGD([each for each in net.parameters() if each.requires_grad], lr=0.1)
        for _ in range(3):
            square_step(net, optimizer, torch.randn(2, 3, 8, 8))
    tree = seen.state.tree
    kept = {info.path: saved_bytes(tree, index) for index, info in enumerate(tree.modules)}
    assert (kept["stem"], kept["stem.conv"], kept["stem.act"]) == (0, 0, 0)
    # SiLU keeps its input, and the convolution after it the output, four bytes each.
    inputs = {"body.0": (4 * 2 * 4 * 64, 4 * 2 * 6 * 64), "body.1": (4 * 2 * 6 * 64, 4 * 2 * 6 * 64)}
    assert {path: kept[path] for path in inputs} == {path: sum(sizes) for path, sizes in inputs.items()}
    assert kept["body.0.conv"] == inputs["body.0"][0]
    line = frontier(tree)
    assert line is not None
    assert [[tree.modules[at].path for at in each] for each in (line.stops, line.never_entered)] == [["body"], ["stem"]]


@pytest.mark.parametrize("act", [nn.GELU(), nn.Sequential(nn.GELU(), nn.Dropout(0.1)), nn.BatchNorm1d(4, affine=False)])
def test_shared_module_says_nothing_about_its_callers(act: nn.Module) -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), act), nn.Sequential(nn.Linear(4, 4), act), nn.Linear(4, 2))
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            square_step(model, optimizer, torch.randn(8, 4))
    tree = seen.state.tree
    shared = [index for index, info in enumerate(tree.modules) if info.path.startswith("0.1")]
    assert len(shared) == sum(1 for _ in act.modules())
    for index in shared:
        assert short(seen.state, index)[0].startswith("Several modules call it")


def test_shared_module_with_parameters_keeps_what_it_computes() -> None:
    block = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    net = nn.ModuleDict({"first": nn.Sequential(block), "second": nn.Sequential(block)})
    with watched() as seen:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(2):
            square_step(lambda inputs: net["second"](net["first"](inputs)), optimizer, torch.randn(8, 4))
    tree = seen.state.tree
    assert saved_bytes(tree, next(at for at, info in enumerate(tree.modules) if info.path.endswith("first.0"))) > 0
