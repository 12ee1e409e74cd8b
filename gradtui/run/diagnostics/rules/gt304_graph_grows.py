"""GT304: the graph of each step contains those of all steps before it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_sample
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

_SAMPLES = 10
"""The newest sampled steps that are compared."""
_MIN, _STEPS = 4, 9
"""Number of samples, and of steps between the first and the last, in which the graph must have grown. Backward through a fixed
number of steps stops growing earlier."""
_STEADY = 0.5
"""Share of the growth per step of the first half that the second half must have."""


def check(state: RunState) -> Iterator[Match]:
    """Match graphs whose operations of earlier steps grow in proportion to the number of steps."""
    steps, counts = state.earlier_operations.steps[-_SAMPLES:], state.earlier_operations.values[-_SAMPLES:]
    saved, middle = state.tree.saved, len(steps) // 2
    if saved is None or len(steps) < _MIN or steps[-1] - steps[0] < _STEPS:
        return
    if any(second <= first for first, second in itertools.pairwise(counts)):
        return
    first = (counts[middle] - counts[0]) / (steps[middle] - steps[0])
    second = (counts[-1] - counts[middle]) / (steps[-1] - steps[middle])
    if first < 1 or second < _STEADY * first:
        return
    yield Match(
        f"the graph of step {steps[-1]:,} has {saved.operations:,} operations, {counts[-1]:,.0f} of them from earlier steps: "
        f"it grows by {second:,.0f} with each step",
        {"operations": saved.operations, "earlier_operations": int(counts[-1]), "operations_per_step": second},
        first_step=steps[0],
        is_exact=True,
        call="backward",
    )


RULE = Rule(
    "GT304",
    Level.ERROR,
    "the graph of each step contains those of all steps before it",
    "a state that is carried over with its graph makes each backward longer than the one before, and keeps all activations",
    "detach what one step passes on to the next: state = state.detach()",
    check,
    explains=frozenset({"GT301"}),
    needs=needs_sample,
)
