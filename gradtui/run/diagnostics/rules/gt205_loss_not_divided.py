"""GT205: gradients accumulate over several batches, and the loss is not divided by their number."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_optimizer, optimizer_name, steps_alone, windows_by_optimizer
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

_STEPS = 3
_SURE_STEPS = 8
_SHARE = 0.8
"""Share of the steps that must have the usual number of backwards, and share of the norms for which clipping must decide."""
_MIN = 3
"""Backwards of a step that are taken for accumulation: two may be two losses, as in a GAN, or of batches of two DataLoaders."""


def check(state: RunState) -> Iterator[Match]:
    """Match regular accumulation over batches, of losses that no factor has made smaller."""
    calls = state.calls
    if calls is None or calls.loss_is_scaled is None or calls.gradients_replaced:
        return
    for each in windows_by_optimizer(state):
        length = each.usual_length
        known = [kind for kind in calls.losses if (kind.optimizer, kind.applied) == (each.optimizer, length)]
        # A script may divide by a setting that is 1.
        if any(kind.is_scaled and set(kind.divisors) != {1.0} for kind in known) or (
            not known and calls.loss_is_scaled
        ):
            continue
        usual = [window for window in each.windows if window.applied == length and window.forwards >= length]
        steps = sum(window.count for window in usual)
        if length < _MIN or steps < _STEPS or steps < _SHARE * each.steps:
            continue
        has_batches = all(window.batches >= length for window in usual)
        has_none = not any(window.batches for window in each.windows) and steps_alone(state, each)
        if not has_batches and not has_none:
            continue
        norms, threshold = state.before_clipping.values, state.clipped_at or math.inf
        cut, cut_of_mean = (sum(norm > threshold * factor for norm in norms) for factor in (1, length))
        decides = len(norms) >= _STEPS and cut >= _SHARE * len(norms) and cut_of_mean <= (1 - _SHARE) * len(norms)
        clipping = (
            f", and clipping cuts {cut:,} of {len(norms):,} sums, and would cut {cut_of_mean:,} of the means"
            if decides
            else ""
        )
        yield Match(
            f"each step of {optimizer_name(state, each.optimizer)} sums the gradients of {length} batches: "
            f"no division of the loss by {length} was found{clipping}",
            {"backwards_a_step": length, "steps": steps, "clipped": cut, "clipped_if_divided": cut_of_mean},
            first_step=min(window.first_step for window in usual),
            is_exact=steps >= _SURE_STEPS,
            call="backward",
            remedy=f"call (loss / {length}).backward(), unless the loss is meant as a sum",
            level=None if decides else Level.NOTE,
            key=str(each.optimizer),
            optimizer=each.optimizer,
        )


RULE = Rule(
    "GT205",
    Level.WARNING,
    "the loss is not divided by the number of accumulated batches",
    "the gradient is larger by that number than that of one large batch, so clipping and learning rate no longer fit",
    "divide the loss by the number of backwards of a step",
    check,
    needs=needs_optimizer,
)
