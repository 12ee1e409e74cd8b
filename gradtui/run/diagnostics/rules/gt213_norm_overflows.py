"""GT213: the norm of finite gradients overflows, and clipping by it makes all of them zero."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState


def check(state: RunState) -> Iterator[Match]:
    """Match steps whose norm was infinite before clipping, and zero after it."""
    found = state.script_calls.zeroed
    if found.count:
        yield Match(
            f"clipping set all gradients to 0 in {found.count:,} of {found.clipped:,} measured steps, first in step "
            f"{found.first_step:,}: their elements were finite, but their norm overflowed to Inf",
            {"steps_zeroed": found.count, "steps_clipped": found.clipped, "last_step": found.last_step},
            first_step=found.first_step,
            is_exact=True,
            call="clip",
        )


RULE = Rule(
    "GT213",
    Level.WARNING,
    "the norm for clipping overflows",
    "the squares of float32 numbers above 1e19, and norms of float16 ones above 65,504, are Inf: clipping divides by the norm, "
    "and the step applies no gradient, so that only momentum and weight decay move the weights",
    "find the batch with the outlier and clamp its inputs, or skip the step where clip_grad_norm_(…, error_if_nonfinite=True) "
    "raises",
    check,
    needs=lambda state: None if state.script_calls.zeroed.clipped else "no step with clipping by norm was measured",
)
