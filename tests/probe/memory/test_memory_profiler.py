"""One step taken apart by hand: peak, who held it, and each module's height, against arithmetic."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

from gradtui.probe.autograd.module_call_log import OUTSIDE, ModuleCallLog
from gradtui.probe.memory.memory_profiler import MemoryProfiler
from gradtui.probe.model.tree_builder import build
from gradtui.protocol.events import StepMemoryProfiled
from gradtui.protocol.vocabulary import Phase

BATCH, WIDTH, HIDDEN = 64, 32, 256
F32 = 4


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.act = nn.Tanh()
        self.narrow = nn.Linear(HIDDEN, 1, bias=False)


WEIGHTS = (WIDTH * HIDDEN + HIDDEN) * F32


def taken_apart(steps_before: int) -> tuple[StepMemoryProfiled, list[str]]:
    """A step of Adam, after some others, with the tracer told what the probe would tell it."""
    model = Mlp()
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.ones(BATCH, WIDTH)

    def forward(modules: ModuleCallLog) -> torch.Tensor:
        out = x
        for index, module in enumerate((model.wide, model.act, model.narrow), start=1):
            modules.entered(index)
            out = module(out)
            modules.left()
        return out.sum()

    for _ in range(steps_before):
        optimizer.zero_grad()
        forward(ModuleCallLog()).backward()
        optimizer.step()
    tree, modules = build([("model", model)]), ModuleCallLog()
    tracer = MemoryProfiler(tree, modules, [optimizer], "cpu", 10_000_000)
    tracer.phase(Phase.FORWARD)
    tracer.enter()
    loss = forward(modules)
    tracer.leave()
    optimizer.zero_grad()
    tracer.phase(Phase.BACKWARD)
    tracer.enter()
    loss.backward()
    tracer.leave()
    tracer.phase(Phase.OPTIMIZER)
    tracer.enter()
    optimizer.step()
    tracer.leave()
    return tracer.finish(1.0, steps_before + 1), [module.path for module in tree.modules]


def held(event: StepMemoryProfiled, kind: str) -> int:
    return sum(holding.bytes for holding in event.holdings if holding.kind == kind)


def test_first_step_without_state_peaks_in_backward() -> None:
    event, paths = taken_apart(0)
    assert [phase for phase, _ in event.phases] == [Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER]
    assert event.peak_phase is Phase.BACKWARD
    assert paths[event.peak_module] == "act"
    # The gradient of the last layer is there, that of the first one not yet.
    assert (held(event, "parameters"), held(event, "gradients")) == (WEIGHTS, HIDDEN * F32)
    # Beside what Tanh keeps there is the loss.
    assert (held(event, "activations"), held(event, "optimizer_state")) == ((BATCH * HIDDEN + 1) * F32, 0)
    assert event.whole


def test_holdings_add_up_to_peak_and_are_arithmetic() -> None:
    event, paths = taken_apart(2)
    assert sum(holding.bytes for holding in event.holdings) == event.peak == max(event.curve)
    assert held(event, "parameters") == WEIGHTS
    # Two moments, and a step counter for each of the two weights.
    assert held(event, "optimizer_state") == 2 * WEIGHTS + 2 * F32
    of_wide = {holding.kind: holding.bytes for holding in event.holdings if holding.module == paths.index("wide")}
    assert of_wide["parameters"] == WIDTH * HIDDEN * F32


def test_forward_keeps_activations_and_modules_have_height() -> None:
    event, paths = taken_apart(2)
    forward, backward = (index for _, index in event.phases[:2])
    start = event.curve[forward]
    # Tanh keeps its result; that of the layer before is freed when it is no longer needed.
    in_forward = event.curve[forward : backward + 1]
    assert max(in_forward) - start == pytest.approx(2 * BATCH * HIDDEN * F32, abs=2 * BATCH * F32)
    heights = dict(zip(paths, event.highest))
    assert heights[""] == max(height for height in event.highest if height is not None)
    act = heights["act"]
    assert act is not None
    assert act >= start + 2 * BATCH * HIDDEN * F32


def test_nothing_is_kept_alive() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tracer = MemoryProfiler(build([("model", model)]), ModuleCallLog(), [optimizer], "cpu", 0)
    tracer.enter()
    result = model(torch.ones(1, 4))
    tracer.leave()
    gone = [weakref.ref(each) for each in (model, optimizer, result)]
    del model, optimizer, result
    gc.collect()
    assert [reference() for reference in gone] == [None, None, None]
    assert tracer.finish(0.0, 0).peak_module == OUTSIDE
