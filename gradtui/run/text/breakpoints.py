"""Describe breakpoints, and why one has paused the run, in words. Pure."""

from __future__ import annotations

import math

from gradtui.protocol.commands import SetBreakpoint
from gradtui.run.text.units import size_text

_NAMES = {"lr": "learning rate", "norm": "gradient norm", "peak": "memory peak"}
_OF_MEMORY = ("memory", "peak")


def breakpoint_text(command: SetBreakpoint) -> str:
    """Return the condition of a breakpoint: `step 500`, `loss > 3`, `memory peak > 2.0 GiB`, `finding GT203`."""
    if command.metric == "step":
        return f"step {command.value:,.0f}"
    if command.metric == "finding":
        return f"finding {command.rule}" if command.rule else "any finding"
    if command.metric == "spike":
        return "a spike of the loss or of the gradient norm"
    return f"{_name(command)} {_limit(command)}"


def reached_text(command: SetBreakpoint, value: float, step: int) -> str:
    """Return why the run is paused: `loss 3.21 > 3 at step 412`. `value` is that of the metric."""
    if command.metric == "step":
        return f"step {step:,}"
    if command.metric == "finding":
        return f"{breakpoint_text(command)} at step {step:,}"
    return f"{_name(command)} {_number(command, value)} {_limit(command)} at step {step:,}"


def _name(command: SetBreakpoint) -> str:
    return command.name or _NAMES.get(command.metric, command.metric)


def _limit(command: SetBreakpoint) -> str:
    return f"{'>' if command.above else '<'} {_number(command, command.value)}"


def _number(command: SetBreakpoint, value: float) -> str:
    is_size = command.metric in _OF_MEMORY and math.isfinite(value)
    return size_text(round(value)) if is_size else f"{value:.4g}"
