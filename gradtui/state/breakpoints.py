"""Compare values with breakpoints, and find those that only the viewer can see reached: of memory and of findings. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from gradtui.protocol.commands import Pause, SetBreakpoint
from gradtui.protocol.events import Event, MemoryMeasured, StepMemoryMeasured
from gradtui.state.findings import Finding, Status
from gradtui.state.run_state import RunState


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
        elif command.metric in ("memory", "peak") and isinstance(event, MemoryMeasured):
            value = event.held.total if command.metric == "memory" else event.peak
            if value is not None and is_met(command, value):
                yield Reached(command, value, event.step)
        elif command.metric in ("memory", "peak") and isinstance(event, StepMemoryMeasured):
            totals = next((each for each in event.totals if each.peak is not None and is_met(command, each.peak)), None)
            if totals is not None and totals.peak is not None:
                yield Reached(command, totals.peak, totals.step)


def _confirmed(findings: Sequence[Finding]) -> frozenset[tuple[str, str]]:
    return frozenset((each.rule, each.key) for each in findings if each.status is Status.CONFIRMED and each.is_open)
