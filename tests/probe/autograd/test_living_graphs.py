"""Graphs that no backward reaches count as activations, with how many they are and since when."""

from __future__ import annotations

import weakref

import pytest
import torch
from helpers.watched import CountingAllocator, watched
from torch import Tensor, nn

from gradtui.probe.memory import living_graphs
from gradtui.protocol.events import GraphsAlive
from gradtui.protocol.vocabulary import Phase

BATCH, WIDTH = 64, 32
SAVED = 2 * BATCH * WIDTH * 4
"""Bytes of one forward: the second layer's input, which tanh has saved, and the output, which the loss saves."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small models are worth a search, however long it takes."""
    for name, value in {
        "MIN_BYTES": SAVED // 4,
        "SEARCH_NS": 10**12,
        "_ONE_SEARCH_NS": 10**12,
        "_MIN_SHARE": 0,
    }.items():
        monkeypatch.setattr(living_graphs, name, value)


@pytest.fixture
def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))


X = torch.ones(BATCH, 4)


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(X).square().sum().backward()
    optimizer.step()


def test_losses_that_are_collected_are_activations(model: nn.Module) -> None:
    allocator, losses = CountingAllocator(), []
    with watched(allocator=allocator) as seen:
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        train(model, optimizer)
        for _ in range(3):
            losses.append(model(X).square().sum())
            allocator.total += SAVED
            train(model, optimizer)
    told = seen.all(GraphsAlive)
    # X is the first step's batch, which every graph keeps too: its first one counts it.
    held = [ledger.held for ledger in seen.ledgers(Phase.OPTIMIZER)]
    assert [each.activations for each in held] == [0, SAVED + X.nbytes, 2 * SAVED + X.nbytes, 3 * SAVED + X.nbytes]
    assert len({each.other + each.input for each in held[1:]}) == 1
    assert [(event.step, event.forwards, event.since_step) for event in told] == [(2, 1, 2), (3, 2, 2), (4, 3, 2)]
    assert all(sum(size or 0 for size in each.within_total().values()) == each.total for each in held)


def test_released_graphs_are_told_no_more(model: nn.Module) -> None:
    allocator = CountingAllocator()
    with watched(allocator=allocator) as seen:
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        train(model, optimizer)
        kept = [model(X).square().sum() for _ in range(2)]
        allocator.total += 2 * SAVED
        train(model, optimizer)
        gone = weakref.ref(kept[0])
        kept.clear()
        assert gone() is None
        allocator.total -= 2 * SAVED
        train(model, optimizer)
    assert [(event.step, event.forwards, event.bytes) for event in seen.all(GraphsAlive)] == [
        (2, 2, 2 * SAVED + X.nbytes), (3, 0, 0),
    ]  # fmt: skip
    assert [ledger.held.activations for ledger in seen.ledgers(Phase.OPTIMIZER)] == [0, 2 * SAVED + X.nbytes, 0]


def test_an_evaluation_that_autograd_records_keeps_activations(model: nn.Module) -> None:
    allocator = CountingAllocator()

    class Grows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.inner(x)
            if not self.training:
                allocator.total += SAVED
            return result

    net = Grows()
    with watched(allocator=allocator) as seen:
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        train(net, optimizer)
        net.eval()
        output = net(X)
        net.train()
        train(net, optimizer)
    (ledger,) = seen.ledgers(Phase.EVAL)
    # Without a loss nothing has saved the output.
    assert ledger.held.activations == SAVED // 2 + X.nbytes
    assert output.requires_grad
    told = seen.all(GraphsAlive)[-1]
    assert (told.forwards, told.at_least, told.since_step) == (1, False, 1)


def test_nothing_is_searched_without_unexplained_bytes(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(living_graphs.LiveGraphs, "search", lambda *_, **__: pytest.fail("searched"))
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            train(model, optimizer)
    assert len(seen.ledgers(Phase.OPTIMIZER)) == 3


def test_a_search_has_a_budget(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(living_graphs, "SEARCH_NS", -(10**12))
    monkeypatch.setattr(living_graphs.LiveGraphs, "search", lambda *_, **__: pytest.fail("searched"))
    allocator, losses = CountingAllocator(), []
    with watched(allocator=allocator) as seen:
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            losses.append(model(X).square().sum())
            allocator.total += SAVED
            train(model, optimizer)
    assert not any(ledger.exact for ledger in seen.ledgers(Phase.OPTIMIZER)[1:])


def test_stand_ins_of_a_compiler_hold_nothing(model: nn.Module) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = nn.Linear(4, 4)(torch.ones(2, 4)).exp()
    allocator = CountingAllocator()
    with watched(allocator=allocator) as seen:
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(2):
            allocator.total += SAVED
            train(model, optimizer)
    assert fake.grad_fn is not None
    assert not seen.all(GraphsAlive)


def test_search_of_recent_objects_keeps_none_alive() -> None:
    recent = nn.Parameter(torch.ones(1))
    reference = weakref.ref(recent)
    living_graphs._tensors(young=True)
    del recent
    assert reference() is None
