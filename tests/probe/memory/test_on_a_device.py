"""What only a CUDA device can show: no waiting for it, the script's own peaks, and figures that are the allocator's."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from helpers.training import square_step, square_steps
from helpers.watched import Watched, watched
from torch import Tensor, nn

from gradtui.probe.gradients.grad_norms import GradNorms, GradNormSample
from gradtui.protocol.commands import FollowMicroSteps, SaveAllocatorSnapshot
from gradtui.protocol.events import (
    CommandApplied,
    DeviceFound,
    DeviceTimesMeasured,
    GradientsMeasured,
    MemoryMeasured,
    MicroStepMeasured,
    OutOfMemory,
)
from gradtui.protocol.vocabulary import Phase
from gradtui.system.run_files import RunFiles

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def base() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Dropout(0.1), nn.Linear(512, 64)).cuda()


def train(model: nn.Module, steps: int = 20) -> None:
    torch.manual_seed(1)
    x = torch.randn(128, 256, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    square_steps(model, optimizer, x, steps)


def result(model: nn.Module) -> tuple[list[Tensor], Tensor, int]:
    torch.cuda.reset_peak_memory_stats()
    train(model)
    torch.cuda.synchronize()
    return [p.detach().cpu() for p in model.parameters()], torch.cuda.get_rng_state(), torch.cuda.max_memory_allocated()


@pytest.mark.fake_cuda
def test_bits_and_random_numbers_are_the_scripts_own() -> None:
    model = base()
    train(copy.deepcopy(model))  # libraries take their workspaces once
    alone = result(copy.deepcopy(model))
    with watched():
        ours = result(copy.deepcopy(model))
    assert all(torch.equal(a, b) for a, b in zip(ours[0], alone[0]))
    assert torch.equal(ours[1], alone[1])


@contextmanager
def waiting_is_an_error() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.fake_cuda
def test_nothing_waits_for_the_device() -> None:
    model = base()
    with watched() as seen, waiting_is_an_error():
        train(model)
    assert seen.state.step == 20


@pytest.mark.fake_cuda
def test_nothing_waits_for_device_in_complex_loop() -> None:
    """Fused and with an explicit `unscale_`, so that torch itself does not wait either."""
    model = base()
    x = torch.randn(128, 256, device="cuda")
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    with watched() as seen, waiting_is_an_error():
        seen.submit(lambda number: FollowMicroSteps(number, True))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        for _ in range(20):
            optimizer.zero_grad()
            for part in x.split(64):
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(part).float().square().mean() / 2
                scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
    assert seen.state.step + seen.state.skipped_steps == 20
    told = [event for event in seen.all(GradientsMeasured) if event.total is not None]
    assert len(told) + seen.probe.norms._meter.dropped == 20
    assert seen.all(MicroStepMeasured)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_large_gradients_are_exact_on_the_device(dtype: torch.dtype) -> None:
    """134 million elements, against float64 in pieces."""
    gradient = torch.rand(1 << 27, device="cuda").mul_(2).sub_(1).to(dtype)
    exact = sum(float(part.double().square().sum()) for part in gradient.split(1 << 22)) ** 0.5
    readings: list[GradNormSample] = []
    meter = GradNorms(readings.append)
    meter.measure(1, [(0, gradient)], None)
    meter.finish()
    assert readings[0].total == pytest.approx(exact, rel=1e-5)


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


def device_ledgers(seen: Watched, phase: Phase) -> list[MemoryMeasured]:
    return [ledger for ledger in seen.ledgers(phase) if ledger.held.parameters > 0]


@pytest.mark.fake_cuda
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


@pytest.mark.fake_cuda
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


class Greedy(nn.Module):
    """Asks for more than any device has, if it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = False

    def forward(self, x: Tensor) -> Tensor:
        if self.fails:
            torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
        return x * 2


@pytest.mark.fake_cuda
def test_failed_allocation_is_told_with_bytes_on_device(tmp_path: Path) -> None:
    greedy = Greedy()
    model = nn.Sequential(base(), greedy)
    size = sum(p.nbytes for p in model.parameters())
    with watched(write_file=RunFiles("train.py", {"XDG_STATE_HOME": str(tmp_path)}).write) as seen:
        train(model, 3)
        greedy.fails = True
        with pytest.raises(torch.OutOfMemoryError):
            train(model, 1)
        greedy.fails = False
        train(model, 2)
    (box,) = seen.all(OutOfMemory)
    held = dict(box.categories)
    assert (box.device, box.requested, box.module, box.phase) == ("cuda:0", 1 << 50, "1", Phase.FORWARD)
    assert held["parameters"] == size
    assert held["activations"] > 0
    assert box.total is not None
    assert box.total >= sum(held.values())
    assert box.file is not None
    assert Path(box.file).read_text(encoding="utf-8").startswith("CUDA out of memory in 1 (forward)")
    assert seen.state.step == 5


@pytest.mark.fake_cuda
def test_the_snapshot_opens_and_has_segments(tmp_path: Path) -> None:
    with watched() as seen:
        seen.probe.dispatcher.files.create = RunFiles("train.py", {"XDG_STATE_HOME": str(tmp_path)}).write
        model = base()
        train(model, 2)
        seen.submit(SaveAllocatorSnapshot)
        train(model, 2)
    assert len(seen.all(CommandApplied)) == 1
    (path,) = (tmp_path / "gradtui").iterdir()
    snapshot = pickle.loads(path.read_bytes())
    active = sum(
        block["size"] for segment in snapshot["segments"] for block in segment["blocks"] if block["state"] != "inactive"
    )
    assert active >= sum(p.nbytes for p in model.parameters())


@pytest.mark.fake_cuda
@pytest.mark.parametrize("form", [{}, {"fused": True}, {"capturable": True}], ids=["foreach", "fused", "capturable"])
def test_offloaded_state_frees_device_and_returns(form: dict[str, bool]) -> None:
    from gradtui.protocol.commands import SetTrainable

    def run(state: str) -> tuple[list[Tensor], list[int], list[str]]:
        model = base()
        torch.manual_seed(1)
        x = torch.randn(128, 256, device="cuda")
        held = []
        with watched() as seen:
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **form)
            for number in range(12):
                if number in (3, 8):
                    seen.submit(lambda id_, trains=number == 8: SetTrainable(id_, "0", trains, state))  # type: ignore[misc]
                square_step(model, optimizer, x)
                states = [value for entry in optimizer.state.values() for value in entry.values()]
                held.append(sum(value.nbytes for value in states if value.is_cuda))
        texts = [event.text for event in seen.all(CommandApplied)]
        return [p.detach().cpu() for p in model.parameters()], held, texts

    kept, _, _ = run("keep")
    offloaded, held, texts = run("offload")
    assert all(torch.equal(a, b) for a, b in zip(offloaded, kept))
    assert held[5] < held[2] == held[10]
    assert "waits in host memory, which frees" in texts[0]
    assert "is back where it was" in texts[1]


def test_device_time_of_phase_equals_script_measurement() -> None:
    class Sleeping(nn.Module):
        """Keeps the device busy, and the host only for a moment."""

        def forward(self, x: Tensor) -> Tensor:
            torch.cuda._sleep(20_000_000)
            return x * 1

    model = nn.Sequential(base(), Sleeping())
    x = torch.randn(128, 256, device="cuda")
    measured: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(6):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            loss = model(x).square().mean()
            end.record()
            measured.append((begin, end))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            torch.cuda.synchronize()
    own = {step: begin.elapsed_time(end) / 1e3 for step, (begin, end) in enumerate(measured, 1)}
    told = {event.step: dict(event.phases)[Phase.FORWARD] for event in seen.all(DeviceTimesMeasured)}
    assert len(told) >= 4
    for step, seconds in told.items():
        assert seconds == pytest.approx(own[step], rel=0.1)
    assert seen.state.cost.own_device_seconds


def test_step_skipped_by_fused_optimizer_is_counted() -> None:
    model = base()
    x = torch.randn(128, 256, device="cuda")
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    with watched() as seen:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        for step in range(8):
            optimizer.zero_grad()
            loss = model(x).square().mean() * (float("inf") if step in (2, 5) else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    assert (seen.state.step, seen.state.skipped_steps, seen.state.optimizer_steps) == (6, 2, [6])


@pytest.mark.fake_cuda
def test_sparse_and_frozen_do_not_wait_for_device() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(50, 8, sparse=True), nn.Linear(8, 4)).cuda()
    model[1].requires_grad_(False)
    indices = torch.randint(0, 50, (64,), device="cuda")
    with watched() as seen, waiting_is_an_error():
        optimizer = torch.optim.SGD(model[0].parameters(), lr=1e-3)
        square_steps(model, optimizer, indices, 20)
    assert [event for event in seen.all(GradientsMeasured) if event.total is not None]


@pytest.mark.fake_cuda
def test_frozen_parameters_and_loss_cost_no_device_memory() -> None:
    def held() -> int:
        gc.collect()
        before = torch.cuda.memory_allocated()
        model = base()
        model[0].requires_grad_(False)
        train(model, 6)
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated() - before

    held()  # libraries take their workspaces once
    alone = held()
    with watched():
        ours = held()
    assert ours == alone
