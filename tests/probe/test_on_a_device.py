"""What only a CUDA device can show: no waiting for it, the script's own peaks, and figures that are the allocator's."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from watched import Watched, watched

from gradtui.protocol.events import DeviceFound, GradientsMeasured, LedgerTaken
from gradtui.protocol.vocabulary import Phase

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def base() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Dropout(0.1), nn.Linear(512, 64)).cuda()


def train(model: nn.Module, steps: int = 20) -> None:
    torch.manual_seed(1)
    x = torch.randn(128, 256, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def result(model: nn.Module) -> tuple[list[Tensor], Tensor, int]:
    torch.cuda.reset_peak_memory_stats()
    train(model)
    torch.cuda.synchronize()
    return [p.detach().cpu() for p in model.parameters()], torch.cuda.get_rng_state(), torch.cuda.max_memory_allocated()


def test_bits_random_numbers_and_the_peak_are_the_scripts_own() -> None:
    model = base()
    train(copy.deepcopy(model))  # libraries take their workspaces once
    alone = result(copy.deepcopy(model))
    with watched():
        ours = result(copy.deepcopy(model))
    assert all(torch.equal(a, b) for a, b in zip(ours[0], alone[0]))
    assert torch.equal(ours[1], alone[1])
    assert ours[2] == alone[2]


@pytest.fixture
def _waiting_is_an_error() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.usefixtures("_waiting_is_an_error")
def test_nothing_waits_for_the_device() -> None:
    model = base()
    with watched() as seen:
        train(model)
    assert seen.state.step == 20


def test_norms_arrive_later_and_are_right() -> None:
    model = base()
    x = torch.randn(128, 256, device="cuda")
    expected = []
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            expected.append(torch.cat([p.grad.flatten() for p in model.parameters()]).double().norm().item())
            optimizer.step()
    totals = [event.total for event in seen.all(GradientsMeasured) if event.total is not None]
    assert totals == pytest.approx(expected, rel=1e-5)


def device_ledgers(seen: Watched, phase: Phase) -> list[LedgerTaken]:
    return [ledger for ledger in seen.ledgers(phase) if ledger.held.parameters > 0]


def test_categories_are_arithmetic_and_the_total_the_allocators() -> None:
    model = base()
    with watched() as seen:
        train(model, 4)
    size = sum(p.nbytes for p in model.parameters())
    (found,) = seen.all(DeviceFound)
    name = "CUDA allocator" if torch.cuda.device_count() == 1 else "CUDA allocator of device 0"
    assert (found.device, found.ledger) == (torch.cuda.get_device_name(), name)
    held = device_ledgers(seen, Phase.OPTIMIZER)[-1].held
    assert (held.parameters, held.gradients) == (size, size)
    # The step counters of AdamW stay on the host.
    assert held.optimizer_state == 2 * size
    others = {ledger.held.other for ledger in device_ledgers(seen, Phase.ZERO_GRAD)[1:]}
    assert len(others) == 1, "what is not ours to name is the same at every step"


def test_nothing_is_measured_while_a_graph_is_captured() -> None:
    model = base()
    x = torch.randn(128, 256, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()

    with watched() as seen:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        before = len(seen.all(GradientsMeasured))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        graph.replay()
        torch.cuda.synchronize()
        captured = [event for event in seen.all(GradientsMeasured)[before:] if event.step > 3]
    assert captured == []
    assert seen.state.step == 4
