"""How long the planner takes to answer what a freeze would change, and then to forecast the peak.

    python benchmarks/forecast_time.py

A transformer encoder with 302 modules. In each round a new planner, as after a newly recorded step: its first answer also
repeats the step as it is now, a later one does not. Wall time of the thread that asks, medians in milliseconds.
"""

from __future__ import annotations

import argparse
import statistics
from time import perf_counter

import torch
from torch import nn

from gradtui.planner import Forecaster
from gradtui.probe.hooks import install
from gradtui.probe.memory import cpu_allocator
from gradtui.probe.probe import Probe
from gradtui.probe.runtime import ProbeOptions
from gradtui.protocol.commands import TraceStep
from gradtui.protocol.forecasts import ForecastAsked
from gradtui.run.reducer import apply
from gradtui.run.state.forecasts.forecast import forecast, question
from gradtui.run.state.run_state import RunState
from gradtui.transport.in_process import CommandQueue, EventQueue

_LAYERS, _WIDTH, _STEPS = 30, 32, 4


def recorded_run() -> RunState:
    """The state of a run whose last step was recorded."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(_WIDTH, 4, 2 * _WIDTH, batch_first=True)
    model, x = nn.TransformerEncoder(layer, _LAYERS, enable_nested_tensor=False), torch.randn(4, 8, _WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    queue, commands, state = EventQueue(1_000_000), CommandQueue(), RunState()
    probe = Probe(queue.put, cpu_allocator(), ProbeOptions(commands))
    install(probe)
    try:
        for step in range(_STEPS):
            if step == _STEPS - 1:
                commands.submit(TraceStep)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    finally:
        probe.detach()
    for event in queue.drain(1_000_000):
        apply(state, event)
    return state


def asked(state: RunState, tensors: int) -> ForecastAsked:
    """The question what a freeze of the first parameter tensors would change."""
    found = question(state, forecast(state, range(tensors), False))
    if found is None:
        raise SystemExit("no step was recorded")
    return found


def main() -> None:
    """Print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds: int = parser.parse_args().rounds
    state = recorded_run()
    recorded = state.operations
    operations = len(recorded.operations) if recorded is not None else 0
    print(f"{len(state.tree.modules)} modules, {operations:,} operations, medians of {rounds} rounds")
    times: dict[str, list[float]] = {}
    for _ in range(rounds):
        planner = Forecaster()
        for name, tensors in (("first", 50), ("later", 100)):
            change, begin = asked(state, tensors), perf_counter()
            answer = planner.answer(change)
            middle = perf_counter()
            planner.with_peak(answer, change)
            times.setdefault(f"{name} answer", []).append(middle - begin)
            times.setdefault(f"{name} peak", []).append(perf_counter() - middle)
    for name, measured in times.items():
        spread = f"{min(measured) * 1e3:.0f} to {max(measured) * 1e3:.0f}"
        print(f"  {name:13} {statistics.median(measured) * 1e3:6.0f} ms  ({spread})")


if __name__ == "__main__":
    main()
