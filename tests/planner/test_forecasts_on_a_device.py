"""Forecasts on a CUDA device: bytes that autograd keeps, gradients and the peak. Checked on a simulated device only."""

from __future__ import annotations

import warnings

import pytest
import torch
from helpers.watched import Watched, watched
from torch import Tensor, nn

from gradtui.planner.forecaster import Forecaster
from gradtui.probe.memory import memory_profile_schedule
from gradtui.protocol import events as ev
from gradtui.protocol.forecasts import Change
from gradtui.run.state.forecasts.forecast import forecast_change, question

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

WIDTH, DEPTH = 256, 6


class Attention(nn.Module):
    """A layer whose attention picks a CUDA kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mix, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.mix(self.norm(x)).chunk(3, dim=-1)
        )
        attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return x + nn.functional.gelu(self.out(attended.transpose(1, 2).flatten(2)))


def network(kind: str, frozen: int = 0) -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module]
    if kind == "attention":
        layers = [Attention() for _ in range(DEPTH)]
    else:
        layers = [nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()) for _ in range(DEPTH)]
    for layer in layers[:frozen]:
        layer.requires_grad_(False)
    return nn.Sequential(*layers).cuda()


def batch(kind: str) -> Tensor:
    torch.manual_seed(1)
    return torch.randn((8, 128, WIDTH) if kind == "attention" else (16, 32, 32, 32), device="cuda")


def train(model: nn.Module, x: Tensor, precision: torch.dtype, steps: int) -> None:
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], 1e-4)
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=precision, enabled=precision is not torch.float32):
            loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()
        del loss


def observed(kind: str, precision: torch.dtype, frozen: int) -> Watched:
    model, x = network(kind, frozen), batch(kind)
    with watched() as run:
        train(model, x, precision, 8)
    return run


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["attention", "convolution"])
def test_forecast_is_what_written_script_measures(
    kind: str, precision: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_profile_schedule, "_FIRST_SHARE", 1e9)
    before, after = observed(kind, precision, 0), observed(kind, precision, DEPTH // 2)
    assert before.all(ev.OperationsRecorded)[-1].operations
    paths = tuple(f"{index}." for index in range(DEPTH // 2))
    stops = tuple(index for index, each in enumerate(before.state.tree.parameters) if each.path.startswith(paths))
    asked = question(before.state, forecast_change(before.state, Change(stops=stops)))
    assert asked is not None
    assert asked.peaks is not None
    forecaster = Forecaster()
    answer = forecaster.with_peak(forecaster.answer(asked), asked)
    assert answer.unknown == ()
    kept = [run.all(ev.SavedBytesMeasured)[-1].total for run in (before, after)]
    assert answer.activations == kept[1] - kept[0]
    assert answer.gradients == -sum(before.state.tree.parameters[index].bytes for index in stops)
    # The state of AdamW is that of a script that is written this way: two tensors for each parameter.
    state = 2 * answer.gradients
    peaks = [max(each.peak or 0 for each in run.all(ev.MemoryMeasured)[-4:]) for run in (before, after)]
    assert answer.peak is not None
    assert peaks[0] + answer.peak + state == pytest.approx(peaks[1], rel=0.05)


def test_recording_waits_for_nothing_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_profile_schedule, "_FIRST_SHARE", 1e9)
    x = batch("attention")
    model, alone = network("attention"), network("attention")
    train(alone, x, torch.float32, 6)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error")
    try:
        with watched() as run:
            train(model, x, torch.float32, 6)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert run.all(ev.OperationsRecorded)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), alone.parameters()))


def test_captured_step_is_captured_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_profile_schedule, "_FIRST_SHARE", 1e9)
    model, x = network("convolution"), batch("convolution")
    with watched() as run:
        train(model, x, torch.float32, 3)
        graph = torch.cuda.CUDAGraph()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-4, capturable=True)
        optimizer.zero_grad(set_to_none=True)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            model(x).square().mean().backward()
        torch.cuda.current_stream().wait_stream(stream)
        optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            model(x).square().mean().backward()
            optimizer.step()
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
    assert not run.all(ev.ProbeFailed)
    assert all(each.isfinite().all() for each in model.parameters())
