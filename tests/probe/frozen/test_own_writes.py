"""Which frozen tensors the forward of their own module changes, in real sampled steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.watched import watched
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from gradtui.probe.memory import cpu_allocator
from gradtui.protocol.events import OwnForwardWrites


class Codes(nn.Module):
    """Moves its codes towards its inputs in train mode."""

    def __init__(self, *, persistent: bool = True) -> None:
        super().__init__()
        self.register_buffer("codes", torch.randn(8), persistent=persistent)
        self.codes: torch.Tensor

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            with torch.no_grad():
                self.codes.lerp_(inputs.mean(0), 0.1)
        return inputs + self.codes


class Table(nn.Module):
    """An embedding of the signs of its inputs, with rows of norm `norm`."""

    def __init__(self, norm: float) -> None:
        super().__init__()
        self.rows = nn.Embedding(2, 8, max_norm=1.0)
        nn.init.constant_(self.rows.weight, norm / 8**0.5)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        rows: torch.Tensor = self.rows((inputs[:, 0] > 0).long())
        return rows


def written(module: nn.Module, steps: int = 6) -> set[str]:
    """Train a head on a frozen module. Returns the names of the module's tensors that their own forward has changed."""
    torch.manual_seed(0)
    model = nn.Sequential(module.requires_grad_(False), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
    with watched(budget=100.0, allocator=cpu_allocator()) as seen:
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
    events = seen.all(OwnForwardWrites)
    return {name for _, name in events[-1].tensors} if events else set()


@pytest.mark.parametrize(
    ("made", "names"),
    [
        (lambda: spectral_norm(nn.Linear(8, 8)), {"_u", "_v"}),
        (Codes, {"codes"}),
        (lambda: Table(2.0), {"weight"}),
    ],
    ids=["power iteration", "code book", "max_norm"],
)
def test_tensors_that_change(made: Callable[[], nn.Module], names: set[str]) -> None:
    assert written(made()) == names


@pytest.mark.parametrize(
    "made",
    [
        lambda: spectral_norm(nn.Linear(8, 8)).eval(),
        lambda: Codes().eval(),
        lambda: Codes(persistent=False),
        lambda: Table(0.5),
        lambda: nn.BatchNorm1d(8),
    ],
    ids=[
        "power iteration in eval mode",
        "code book in eval mode",
        "temporary buffer",
        "short rows",
        "running statistics",
    ],
)
def test_tensors_that_stay_or_are_told_elsewhere(made: Callable[[], nn.Module]) -> None:
    assert written(made()) == set()


def test_quantization_observers_are_meant_to_move() -> None:
    """torch's own, also in eval mode, and what a script derives from them."""
    from torch.ao.quantization import FakeQuantize, MovingAverageMinMaxObserver

    class Own(FakeQuantize):  # type: ignore[misc] # torch has no types for it
        pass

    made = {kind: kind.with_args(observer=MovingAverageMinMaxObserver) for kind in (FakeQuantize, Own)}
    for make in made.values():
        assert written(nn.Sequential(nn.Linear(8, 8), make())) == set()
