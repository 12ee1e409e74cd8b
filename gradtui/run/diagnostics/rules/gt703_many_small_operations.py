"""GT703: the host starts many small operations, and that takes most of the time."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.small_operations import lost_to_operations, needs_counts
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import duration_text


def check(state: RunState) -> Iterator[Match]:
    """Match a loop most of which starts operations, unless many of these read values (GT702)."""
    for found in lost_to_operations(state):
        if not found.small.are_reads:
            yield Match(
                f"{found.words} goes to starting small operations: {found.small.operations:,.0f} a step, about "
                f"{duration_text(found.small.each)} each",
                found.evidence,
                is_exact=found.is_exact,
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
