"""GT204: gradients accumulate over windows of unequal length, or some are cleared without a step."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.call_order import AccumulationWindow
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import OptimizerWindows, needs_optimizer, optimizer_name, windows_by_optimizer
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

_REGULAR = 3
"""Windows of the usual length that must follow a short first one."""


def check(state: RunState) -> Iterator[Match]:
    """Match a first window that is shorter than all others, and backwards that are cleared without a step now and then."""
    for each in windows_by_optimizer(state):
        if each.usual_length > 1:
            yield from _short_first(state, each)
            yield from _left_over(state, each)


def _short_first(state: RunState, each: OptimizerWindows) -> Iterator[Match]:
    first = state.calls.first_windows if state.calls is not None else ()
    lengths = [applied for optimizer, applied in first if optimizer == each.optimizer]
    usual = each.usual_length
    # A length that grows is a warm-up of the accumulation.
    if not 0 < lengths[0] < usual or lengths[1 : 1 + _REGULAR] != [usual] * _REGULAR:
        return
    yield Match(
        f"the first step of {optimizer_name(state, each.optimizer)} applies {lengths[0]} backward of {usual}: "
        f"the windows are {', '.join(str(length) for length in lengths[:4])}, …",
        {"first_window": lengths[0], "usual_window": usual, "steps": each.steps},
        first_step=1,
        is_exact=True,
        call="step",
        remedy=f"step after each {usual} backwards, counting from 1: if (index + 1) % {usual} == 0",
        key=f"first {each.optimizer}",
    )


def _left_over(state: RunState, each: OptimizerWindows) -> Iterator[Match]:
    usual = each.usual_length
    lost = [window for window in each.windows if window.cleared and window.applied and not _is_skip(window, usual)]
    steps = sum(window.count for window in lost)
    if not lost or 2 * steps > each.steps:
        return
    backwards = sum(window.cleared * window.count for window in lost)
    yield Match(
        f"{backwards:,} backwards were cleared without a step: {steps:,} windows of "
        f"{optimizer_name(state, each.optimizer)} began anew before they had {usual} backwards",
        {"backwards_lost": backwards, "windows": steps, "usual_window": usual, "steps": each.steps},
        first_step=min(window.first_step for window in lost),
        is_exact=True,
        call="clearing",
        remedy="step once more at the end of an epoch, or do not clear what is left",
        key=f"left over {each.optimizer}",
    )


def _is_skip(window: AccumulationWindow, usual: int) -> bool:
    """Return whether the script left out a batch before its backward, or a whole step, as it does where a loss is NaN."""
    backwards = window.applied + window.cleared
    return window.cleared % usual == 0 or window.forwards % backwards != 0


RULE = Rule(
    "GT204",
    Level.WARNING,
    "accumulation windows are of unequal length",
    "a step over fewer backwards has a smaller or noisier gradient, and a backward that is cleared without a step is lost",
    "step after the same number of backwards each time, and at the end of an epoch",
    check,
    needs=needs_optimizer,
)
