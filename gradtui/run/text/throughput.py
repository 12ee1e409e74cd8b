"""How much a run processes in a second, in words. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gradtui.run.state.parts.bounds import Bound
from gradtui.run.state.parts.throughput import Throughput
from gradtui.run.state.run_state import RunState
from gradtui.run.state.time.throughput_of_run import mean_throughput, slowdown, throughput_now
from gradtui.run.text.units import bounded, count_text, duration_text, number_text, share_words, three_digits

_FLOP_UNITS = ("FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s", "EFLOP/s")
_GROWN = 0.1
"""The part by which steps have become longer, or shorter, from which on it is said."""


def throughput_clauses(made: Throughput) -> Iterator[str]:
    """Yield samples, tokens and floating-point operations per second, as far as they are known."""
    if made.samples is not None:
        yield f"{a_second(made.samples, made.samples_bound)} samples/s"
    if made.tokens is not None:
        yield f"{a_second(made.tokens, made.tokens_bound)} tokens/s"
    if made.flops is not None:
        share = ""
        if made.share_of_peak is not None:
            share = f" ({bounded(made.flops_bound, share_words(made.share_of_peak))} of the device's peak)"
        yield f"{flops_text(made.flops, made.flops_bound)}{share}"


def throughput_words(state: RunState) -> list[str]:
    """Return what the run processes lately, in clauses without its steps."""
    made = throughput_now(state)
    return list(throughput_clauses(made)) if made is not None else []


def mean_words(state: RunState) -> str:
    """Return what the run has processed on average, in one clause; empty before ten steps."""
    made = mean_throughput(state)
    if made is None:
        return ""
    return ", ".join([f"{a_second(made.steps)} steps/s", *throughput_clauses(made), *_trend(state)])


def _trend(state: RunState) -> Iterator[str]:
    grown, times = slowdown(state), state.step_times
    if grown is None or times is None or abs(grown) < _GROWN or times.early_step is None or times.late_step is None:
        return
    yield f"{duration_text(times.late_step)} a step lately, and {duration_text(times.early_step)} at first"


def a_second(rate: float, bound: Bound = "exact") -> str:
    """Format a number per second with three digits: `0.35`, `24.1`, `12.6k`."""
    if not math.isfinite(rate) or rate < 0.1:
        return bounded(bound, number_text(rate).strip())
    return bounded(bound, three_digits(rate) if rate < 999.5 else count_text(round(rate)).strip())


def flops_text(rate: float, bound: Bound = "exact") -> str:
    """Format floating-point operations per second: `1.24 TFLOP/s`."""
    unit = 0
    while rate >= 999.5 and unit < len(_FLOP_UNITS) - 1:
        rate, unit = rate / 1000, unit + 1
    return bounded(bound, f"{three_digits(rate)} {_FLOP_UNITS[unit]}")
