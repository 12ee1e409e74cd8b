"""GT703: the host starts many small operations, and that takes most of the time."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.small_operations import lost_to_operations, needs_counts
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import duration_text

_ACTS = (
    "step several environments at once, so that each call of the model has a batch; collect without gradients and compute the "
    "loss in one call, as PPO does"
)


def check(state: RunState) -> Iterator[Match]:
    """Match a loop most of which starts operations, unless many of these read values (GT702)."""
    for found in lost_to_operations(state):
        if not found.small.are_reads:
            acts = found.small.depend_on_reads
            calls = f", in {found.small.calls:,.0f} calls of models with a read of a value after each" if acts else ""
            yield Match(
                f"{found.words} goes to starting small operations: {found.small.operations:,.0f} a step, about "
                f"{duration_text(found.small.each)} each{calls}",
                found.evidence,
                is_exact=found.is_exact,
                remedy=_ACTS if acts else None,
                # The next call depends on what was read: no tensor could have all of them.
                level=Level.NOTE if acts else None,
                explains=found.explains,
            )


RULE = Rule(
    "GT703",
    Level.WARNING,
    "host-bound by many small operations",
    "each operation costs Python and torch some microseconds, however few numbers it computes",
    "compute on whole tensors in place of loops over samples, steps or parameters, enlarge the batch, use a fused module or "
    "torch._foreach functions, or compile the model with torch.compile",
    check,
    needs=needs_counts,
)
