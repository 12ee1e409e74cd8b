"""The peak of a step on a simulated CUDA device: its profile, and forecasts of it against runs that are written that way."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch
from helpers import simulated
from helpers.forecasts import asked_of
from helpers.watched import Watched, watched
from patterns import patterns
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from gradtui.planner import Forecaster
from gradtui.protocol import events as ev
from gradtui.protocol.commands import TraceStep
from gradtui.protocol.forecasts import Change
from gradtui.protocol.vocabulary import Phase
from gradtui.remote.live.planned_choices import PlannedChange, choice_of, figures_now, question_of
from gradtui.run.state.forecasts.forecast import forecast_change

pytestmark = pytest.mark.fake_cuda

WIDTH, STEPS = 256, 5


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.down(nn.functional.gelu(self.up(self.norm(x))))
        return y


def network(kind: str) -> tuple[nn.Module, Tensor]:
    if kind == "blocks":
        return nn.Sequential(*[Block() for _ in range(4)]).cuda(), torch.zeros(8, 64, WIDTH, device="cuda")
    if kind == "large":
        # Most requests get segments of their own, as in models whose memory matters.
        wide = [
            nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024), nn.LayerNorm(1024)) for _ in range(8)
        ]
        return nn.Sequential(*wide).cuda(), torch.zeros(16, 256, 1024, device="cuda")
    if kind == "small":
        # Each tensor has 40 or 400 bytes, of a block of 512.
        small = [nn.Sequential(nn.Linear(10, 10), nn.LayerNorm(10), nn.Tanh()) for _ in range(30)]
        return nn.Sequential(*small).cuda(), torch.zeros(2, 10, device="cuda")
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU()) for _ in range(6)]
    return nn.Sequential(*layers).cuda(), torch.zeros(1024, WIDTH, device="cuda")


def train(
    model: nn.Module, x: Tensor, kind: type[Optimizer], before: Callable[[int], object] = lambda _: None
) -> Optimizer:
    """Train for some steps; `before` is called before each of them with its index. Return the optimizer."""
    optimizer = kind([each for each in model.parameters() if each.requires_grad], lr=0.01)  # type: ignore[call-arg]
    for step in range(STEPS):
        before(step)
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
    return optimizer


def observed(model: nn.Module, x: Tensor, kind: type[Optimizer] = SGD) -> Watched:
    with watched() as run:

        def trace(step: int) -> None:
            if step == STEPS - 1:
                run.commands.submit(lambda number: TraceStep(number))
                torch.cuda.reset_peak_memory_stats()

        optimizer = train(model, x, kind, trace)
    # What the run knows of an optimizer ends with it.
    assert run.state.optimizers
    del optimizer
    return run


@pytest.fixture(autouse=True)
def _without_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "enabled", False)
    # Workspaces of cuBLAS are there from the first products on.
    train(*network("blocks"), SGD)


def peak_of(kind: str, trains: frozenset[int], optimizer: type[Optimizer] = SGD) -> int:
    """Return the allocator's peak of a step in which these parameters train, beyond what the process holds before."""
    gc.collect()
    before = torch.cuda.memory_allocated()
    model, x = network(kind)
    for index, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(index in trains)
    train(model, x, optimizer, lambda step: step == STEPS - 1 and torch.cuda.reset_peak_memory_stats())
    return torch.cuda.max_memory_allocated() - before


@pytest.mark.parametrize("kind", ["blocks", "norms"])
def test_profile_has_peak_and_leaves_allocator_alone(kind: str) -> None:
    gc.collect()
    before = torch.cuda.memory_allocated()
    model, x = network(kind)
    rng, waits = torch.cuda.get_rng_state(), simulated.calls().waits
    run = observed(model, x)
    assert simulated.calls().waits == waits
    stats = torch.cuda.memory_stats()
    profile = run.all(ev.StepMemoryProfiled)[-1]
    assert profile.step == STEPS
    assert profile.whole
    assert profile.peak == stats["requested_bytes.all.peak"]
    assert profile.blocks == pytest.approx(stats["allocated_bytes.all.peak"], rel=0.01)
    assert profile.peak_phase is Phase.BACKWARD
    assert profile.peak_module >= 0
    phases = [phase for phase, _ in profile.phases]
    assert [each for each in phases if each in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)] == [
        Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER,
    ]  # fmt: skip
    kinds = {each.kind: each.bytes for each in profile.holdings if each.kind != "activations"}
    assert kinds.get("parameters")
    assert torch.equal(torch.cuda.get_rng_state(), rng)
    assert not torch._C._cuda_isHistoryEnabled()
    assert not any(torch.cuda.memory._snapshot()["device_traces"])
    peak = torch.cuda.max_memory_allocated() - before
    reserved = torch.cuda.max_memory_reserved()
    del model, x
    assert reserved == torch.cuda.memory_reserved()
    assert peak == peak_of(kind, frozenset(range(1_000)))


@pytest.mark.parametrize("optimizer", [SGD, Adam])
@pytest.mark.parametrize("kind", ["blocks", "norms", "small"])
def test_ten_forecasts_are_within_one_percent_of_peak(kind: str, optimizer: type[Optimizer]) -> None:
    gc.collect()
    before = torch.cuda.memory_allocated()
    model, x = network(kind)
    run = observed(model, x, optimizer)
    asked = asked_of(run.state)
    assert asked.peaks is not None
    forecaster, predicted = Forecaster(), {}
    chosen = patterns(model)
    for name, trains in chosen.items():
        stops = tuple(index for index, _ in enumerate(model.parameters()) if index not in trains)
        about = question_of(run.state, PlannedChange("", (), forecast_change(run.state, Change(stops))), None)
        assert about is not None
        answer = forecaster.with_peak(forecaster.answer(about), about)
        assert answer.peak is not None, name
        predicted[name] = asked.peaks.highest[1] + answer.peak - before
    del model, x, run
    found = {name: peak_of(kind, trains, optimizer) for name, trains in chosen.items()}
    assert len(found) == 10
    assert len(set(found.values())) > 2
    assert predicted == pytest.approx(found, rel=0.01)


def test_reserved_memory_is_forecast_within_an_eighth() -> None:
    model, x = network("large")
    gc.collect()
    torch.cuda.empty_cache()
    run = observed(model, x)
    now, forecaster, predicted = figures_now(run.state), Forecaster(), {}
    chosen = patterns(model)
    for name, trains in chosen.items():
        stops = tuple(index for index, _ in enumerate(model.parameters()) if index not in trains)
        change = PlannedChange("", (), forecast_change(run.state, Change(stops)))
        asked = question_of(run.state, change, None)
        assert asked is not None
        answer = forecaster.with_peak(forecaster.answer(asked), asked)
        predicted[name] = choice_of(change, now, answer, run.state).figures.reserved
    assert now.reserved == torch.cuda.memory_reserved() > 1 << 30
    del model, x, run, asked, answer
    found = {}
    for name, trains in chosen.items():
        gc.collect()
        torch.cuda.empty_cache()
        peak_of("large", trains)
        found[name] = torch.cuda.memory_reserved()
    assert max(found.values()) > 2 * min(found.values())
    assert predicted == pytest.approx(found, rel=0.125)


def test_script_that_records_its_own_history_keeps_it() -> None:
    model, x = network("blocks")
    torch.cuda.memory._record_memory_history(context=None)
    try:
        run = observed(model, x)
        assert not run.all(ev.StepMemoryProfiled)
        assert torch._C._cuda_isHistoryEnabled()
        assert len(torch.cuda.memory._snapshot()["device_traces"][0]) > 100
    finally:
        torch.cuda.memory._record_memory_history(None)


def test_script_recording_history_has_its_own_alone() -> None:
    model, x = network("blocks")
    seen: list[int] = []

    def begin(*_: object) -> None:
        if torch._C._cuda_isHistoryEnabled() and not seen:
            seen.append(len(torch.cuda.memory._snapshot()["device_traces"][0]))
            torch.cuda.memory._record_memory_history(context=None)

    model.get_submodule("2").register_forward_hook(begin)
    try:
        run = observed(model, x)
        assert seen == [0]
        assert not [each for each in run.all(ev.StepMemoryProfiled) if each.step == STEPS]
        assert torch._C._cuda_isHistoryEnabled()
        assert torch.cuda.memory._snapshot()["device_traces"][0]
    finally:
        torch.cuda.memory._record_memory_history(None)


def test_history_that_cannot_be_read_ends_with_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> object:
        raise RuntimeError("no snapshot")

    monkeypatch.setattr(torch._C, "_cuda_memorySnapshot", fails)
    model, x = network("blocks")
    optimizer = SGD(model.parameters(), 0.01)
    with watched(may_fail=True) as run:
        for _ in range(STEPS):
            model(x).square().mean().backward()
            optimizer.step()
            assert not torch._C._cuda_isHistoryEnabled()
            assert torch._C._cuda_memorySnapshot is fails
    assert "no snapshot" in str(run.all(ev.ProbeFailed))
