"""GT210: the GradScaler skips step after step, or the gradient norm grows a hundredfold within a few steps."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_norm
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

_SKIPS = 10
"""Skipped steps in a row: a scaler that starts at 65,536 needs a few to find its scale."""
_GROWTH = 100.0
_WITHIN = 20
_NOT_CLIPPED = "clip the gradient by its norm, or lower the learning rate"
_CLIPPED = "lower the learning rate, or the limit of clipping"


def check(state: RunState) -> Iterator[Match]:
    """Match many skipped steps in a row, and a sudden growth of the gradient norm."""
    skips = state.calls.skips_in_a_row if state.calls is not None else 0
    if skips >= _SKIPS:
        yield Match(
            f"the GradScaler has skipped the last {skips:,} steps",
            {"skips_in_a_row": skips},
            is_exact=True,
            remedy="look for the NaN or Inf in the gradients: lowering the scale further does not help",
            key="skips",
        )
    # Steps of several optimizers are of different models, and their norms have one series.
    if sum(map(bool, state.optimizer_steps)) == 1:
        yield from _growth(state)


def _growth(state: RunState) -> Iterator[Match]:
    steps, norms = state.gradient_norm.steps, state.gradient_norm.values
    smallest: tuple[float, int] | None = None
    # GT220 says of which batch a spike is, and the norms of the steps after it follow from it.
    spiked = {step for each in state.spikes for step in range(each.step, each.step + _WITHIN)}
    for step, norm in zip(steps[-_WITHIN:], norms[-_WITHIN:]):
        if not math.isfinite(norm) or norm <= 0 or step in spiked:
            continue
        if smallest is None or norm < smallest[0] or step - smallest[1] > _WITHIN:
            smallest = norm, step
        elif norm >= _GROWTH * smallest[0]:
            yield Match(
                f"the gradient norm grew from {smallest[0]:.3g} at step {smallest[1]:,} to {norm:.3g} at step {step:,}",
                {"from": smallest[0], "to": norm, "from_step": smallest[1], "to_step": step},
                first_step=smallest[1],
                is_exact=True,
                remedy=_CLIPPED if state.clipped_at is not None and math.isfinite(state.clipped_at) else _NOT_CLIPPED,
                level=Level.NOTE,
                key="growth",
            )
            return


RULE = Rule(
    "GT210",
    Level.WARNING,
    "training is unstable",
    "a skipped step learns nothing, and a gradient that explodes soon overwrites the weights",
    "find the first value that is not finite, clip the gradient or lower the learning rate",
    check,
    needs=needs_norm,
)
