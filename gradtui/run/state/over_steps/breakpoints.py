"""Compare values with breakpoints, and find those that only the viewer can see reached: of memory, of what the script logs, and
of findings. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from gradtui.protocol.commands import Pause, SetBreakpoint
from gradtui.protocol.events import Event, MemoryMeasured, MetricsLogged, StepMemoryMeasured
from gradtui.run.state.findings import Finding, Status
from gradtui.run.state.memory.run_memory import above_load
from gradtui.run.state.run_state import RunState


def is_met(command: SetBreakpoint, value: float | None) -> bool:
    """Return whether a metric with this value meets the condition of a breakpoint. NaN and None meet none."""
    return value is not None and (value > command.value if command.above else value < command.value)


class Reached(NamedTuple):
    """A breakpoint that is reached (for any finding, with the rule that found it), the value of its metric, and the step."""

    command: SetBreakpoint
    value: float
    step: int


def reached(state: RunState, event: Event, before: Sequence[Finding]) -> Iterator[Reached]:
    """Yield each breakpoint that an event has reached and that no waiting `Pause` names.

    The event has been applied to the state. `before` are the findings before it.
    """
    if not state.breakpoints:
        return
    asked = {each.breakpoint for each in state.pending.values() if isinstance(each, Pause)}
    rules = sorted(rule for rule, _ in _confirmed(state.findings) - _confirmed(before))
    for number, command in state.breakpoints.items():
        if number in asked:
            continue
        if command.metric == "finding":
            found = [rule for rule in rules if command.rule in ("", rule)]
            if found:
                yield Reached(replace(command, rule=found[0]), 0.0, max(event.step, state.step))
        elif command.metric == "logged":
            logged = _logged(state, event, command.name)
            yield from [Reached(command, value, step) for value, step in logged if is_met(command, value)][:1]
        elif command.metric in ("memory", "peak"):
            sizes = (
                (above_load(state, size), step) for size, step in _sizes(event, command.metric) if size is not None
            )
            yield from [Reached(command, size, step) for size, step in sizes if is_met(command, size)][:1]


def _logged(state: RunState, event: Event, name: str) -> Iterator[tuple[float, int]]:
    """Yield the values of a metric, each with its step."""
    metric = state.metrics.by_name.get(name)
    for points in event.points if isinstance(event, MetricsLogged) else ():
        if metric is not None and points.name == name and points.source == metric.source:
            yield from zip(points.values, points.steps)


def _sizes(event: Event, metric: str) -> Iterator[tuple[int | None, int]]:
    """Yield totals at the ends of phases, or the peaks, each with its step, in their order."""
    if isinstance(event, MemoryMeasured):
        yield event.held.total if metric == "memory" else event.peak, event.step
    elif isinstance(event, StepMemoryMeasured):
        for totals in event.totals:
            ends = (totals.forward, totals.backward, totals.optimizer)
            yield from ((size, totals.step) for size in (ends if metric == "memory" else (totals.peak,)))


def _confirmed(findings: Sequence[Finding]) -> frozenset[tuple[str, str]]:
    return frozenset((each.rule, each.key) for each in findings if each.status is Status.CONFIRMED and each.is_open)
