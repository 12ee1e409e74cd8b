"""GT204: gradients accumulate over windows of unequal length, are cleared without a step, or pass into the next epoch."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.call_order import AccumulationWindow
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import OptimizerWindows, needs_optimizer, optimizer_name, windows_by_optimizer
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import plural

_REGULAR = 3
"""Windows of the usual length that must follow a short first one."""
_EPOCHS = 2
"""Windows that must have backwards of the epoch before, at equal distances."""


def check(state: RunState) -> Iterator[Match]:
    """Match a short first window, backwards that are cleared without a step, and those that pass into the next epoch."""
    for each in windows_by_optimizer(state):
        if each.usual_length > 1:
            passed = [*_passed_on(state, each)]
            yield from passed or _short_first(state, each)
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
        optimizer=each.optimizer,
    )


def _passed_on(state: RunState, each: OptimizerWindows) -> Iterator[Match]:
    kinds = {(window.applied, window.batches) for window in each.windows}
    usual, long = min(length for length, _ in kinds), max(length for length, _ in kinds)
    found = [window for window in each.windows if window.applied == long]
    # The request that found a DataLoader's end is one batch more than backwards.
    ends_epoch = kinds == {(usual, usual), (long, long + 1)} and sum(window.count for window in found) >= _EPOCHS
    if not 1 < usual < long < 2 * usual or not (ends_epoch or _returns(state, each, usual, long)):
        return
    steps = sum(window.count for window in found)
    yield Match(
        f"{steps:,} of {each.steps:,} steps of {optimizer_name(state, each.optimizer)} apply {long} backwards instead of "
        f"{usual}: the last {long - usual} of an epoch are neither stepped nor cleared, and count in the next one",
        {"steps": each.steps, "long_windows": steps, "usual_window": usual, "passed_on": long - usual},
        first_step=min(window.first_step for window in found),
        is_exact=True,
        call="step",
        remedy=f"step also after the last batch of an epoch: if (index + 1) % {usual} == 0 or index + 1 == len(loader)",
        key=f"passed on {each.optimizer}",
        optimizer=each.optimizer,
    )


def _returns(state: RunState, each: OptimizerWindows, usual: int, long: int) -> bool:
    """Return whether longer windows return at equal distances, and not yet in the first epoch.

    The first epoch has no backwards before it. Where a script steps over what is left, the first epoch ends with them.
    """
    first = state.calls.first_windows if state.calls is not None else ()
    lengths = [applied for optimizer, applied in first if optimizer == each.optimizer]
    longer = [index for index, length in enumerate(lengths) if length == long]
    period = longer[0] if longer else 0
    is_other = any(length not in (usual, long) for length in lengths)
    return (
        period > 1 and not is_other and len(longer) >= _EPOCHS and longer == list(range(period, len(lengths), period))
    )


def _left_over(state: RunState, each: OptimizerWindows) -> Iterator[Match]:
    usual = each.usual_length
    lost = [window for window in each.windows if window.cleared and window.applied and not _is_skip(window, usual)]
    steps = sum(window.count for window in lost)
    if not lost or 2 * steps > each.steps:
        return
    backwards = sum(window.cleared * window.count for window in lost)
    yield Match(
        f"{plural(backwards, 'backward')} {'was' if backwards == 1 else 'were'} cleared without a step: "
        f"{plural(steps, 'window')} of {optimizer_name(state, each.optimizer)} began anew before "
        f"{'it' if steps == 1 else 'they'} had {usual} backwards",
        {"backwards_lost": backwards, "windows": steps, "usual_window": usual, "steps": each.steps},
        first_step=min(window.first_step for window in lost),
        is_exact=True,
        call="clearing",
        remedy="step once more at the end of an epoch, or do not clear what is left",
        key=f"left over {each.optimizer}",
        optimizer=each.optimizer,
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
