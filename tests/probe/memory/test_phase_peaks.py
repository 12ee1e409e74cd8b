"""The peak of each phase where the allocator tells the highest since the last reading, as the protected CUDA one does."""

from __future__ import annotations

import pytest
import torch
from helpers.watched import Watched, watched
from torch import nn

from gradtui.probe.samplers.cpu_memory import Reading
from gradtui.protocol.events import MemoryMeasured
from gradtui.protocol.vocabulary import Phase

X = torch.ones(3, 4)
BASE = 10_000_000


class PeakingAllocator:
    """Tells the peak since the reading before; the script's own doings are calls of `spike`."""

    name = "test"
    device_type = "cpu"
    exact = True

    def __init__(self) -> None:
        self.total = self.peak = BASE

    def spike(self, height: int) -> None:
        """So much more is allocated, and freed at once."""
        self.peak = max(self.peak, self.total + height)

    def read(self) -> Reading:
        reading = Reading(self.total, self.peak, since_last=True)
        self.peak = self.total
        return reading


class Spiking(nn.Module):
    """A linear layer whose forward and backward reach as high as they are told."""

    def __init__(self, allocator: PeakingAllocator) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)
        self.forward_height = self.backward_height = 0
        self._allocator = allocator

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._allocator.spike(self.forward_height)
        output = self.fc(x)
        if torch.is_grad_enabled():
            height = self.backward_height
            output.register_hook(lambda gradient: self._allocator.spike(height))
        return output


def peaks(seen: Watched, phase: Phase) -> list[int]:
    """How far above the base each ledger of a phase says that it was; all of them must be exact."""
    ledgers = seen.ledgers(phase)
    assert all(ledger.peak_exact for ledger in ledgers)
    return [(ledger.peak or 0) - BASE for ledger in ledgers]


def test_every_phase_has_its_own_peak() -> None:
    allocator = PeakingAllocator()
    model = Spiking(allocator)
    model.forward_height, model.backward_height = 300, 700
    with watched(allocator=allocator) as seen:
        allocator.spike(2_000)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(X).sum().backward()
            optimizer.step()
            allocator.spike(50)
    assert peaks(seen, Phase.LOAD)[0] == 2_000
    assert peaks(seen, Phase.FORWARD) == [300] * 3
    assert peaks(seen, Phase.BACKWARD) == [700] * 3
    assert peaks(seen, Phase.OPTIMIZER) == [0] * 3


def test_memory_between_phases_counts_where_it_happened() -> None:
    allocator = PeakingAllocator()
    model = Spiking(allocator)
    model.forward_height = 100
    with watched(allocator=allocator) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            loss = model(X).sum()
            allocator.spike(40)
            optimizer.zero_grad()
            allocator.spike(900)
            loss.backward()
            optimizer.step()
    # For the ledger the forward ends where backward begins.
    assert peaks(seen, Phase.FORWARD) == [900] * 2
    assert peaks(seen, Phase.ZERO_GRAD) == [0] * 2


def test_highest_of_accumulated_micro_steps_is_told() -> None:
    allocator = PeakingAllocator()
    model = Spiking(allocator)
    with watched(allocator=allocator) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            for height in (100, 800, 300):
                model.forward_height, model.backward_height = height, 2 * height
                model(X).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert peaks(seen, Phase.FORWARD) == [100, 800] * 2
    assert peaks(seen, Phase.BACKWARD) == [200, 1600] * 2
    record = seen.state.phases[Phase.BACKWARD]
    assert (record.peak, record.peak_bound == "exact") == (BASE + 1600, True)
    assert record.last.peak == BASE + 1600


def test_an_evaluation_has_its_own_peak() -> None:
    allocator = PeakingAllocator()
    model = Spiking(allocator)
    with watched(allocator=allocator) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            model(X).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        model.forward_height = 4_000
        with torch.no_grad():
            model(X)
    assert peaks(seen, Phase.EVAL)[-1] == 4_000


def test_evaluation_before_training_has_its_peak() -> None:
    allocator = PeakingAllocator()
    model = Spiking(allocator)
    model.forward_height = 300
    with watched(allocator=allocator) as seen:
        allocator.spike(2_000)
        model.eval()
        with torch.no_grad():
            model(X)
    assert peaks(seen, Phase.LOAD) == [2_000]
    assert peaks(seen, Phase.EVAL) == [300]


def test_first_look_knows_bound_of_earlier_steps() -> None:
    allocator = PeakingAllocator()
    model = Spiking(allocator)
    model.forward_height = 100
    # A budget of next to nothing: after the first ones, steps are looked at rarely.
    with watched(allocator=allocator, budget=1e-3) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4_000):
            allocator.spike(9_000_000 if step % 2 else 0)
            model(X).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    late = [ledger for ledger in seen.ledgers(Phase.FORWARD) if ledger.step > 1_000]
    if not late:
        pytest.skip("no step was looked at so late")
    assert {(ledger.peak or 0) - BASE for ledger in late} == {100}


def test_models_moving_to_device_leave_no_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake device of the kind `meta`, whose tensors every machine can make."""
    device = PeakingAllocator()
    device.device_type = "meta"
    monkeypatch.setattr("gradtui.probe.memory.memory_breakdown.device_allocator", lambda _: device)
    device.spike(7_000)
    model = nn.Linear(4, 2)
    # Norms cannot be read there, which is no matter here.
    with watched(may_fail=True) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for kind in ("cpu", "meta", "meta"):
            if kind == "meta" and model.weight.device.type == "cpu":
                model = nn.Linear(4, 2, device="meta")
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model(torch.ones(3, 4, device=kind)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    on_device = [ledger for ledger in seen.all(MemoryMeasured) if ledger.held.total == BASE]
    assert on_device
    assert {ledger.peak for ledger in on_device} == {BASE}
