"""GT306: the graph of each step is retained, for no second backward, while the next forward runs."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_sample
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import size_text

_STEPS = 3
_BYTES = 1 << 20
"""A smaller graph is no matter of memory."""
_SAMPLES = 10


def check(state: RunState) -> Iterator[Match]:
    """Match graphs that are whole when the next forward begins, where no later backward goes through them."""
    found = state.evidence.retained_graph
    if found is None or found.steps < _STEPS or found.bytes < _BYTES:
        return
    if any(state.earlier_operations.values[-_SAMPLES:]):
        return
    yield Match(
        f"backward retains the graph of each step, and no second backward goes through it: {size_text(found.bytes)} stay in "
        "memory during the next forward",
        {"bytes": found.bytes, "steps": found.steps},
        is_exact=True,
        call="backward",
    )


RULE = Rule(
    "GT306",
    Level.WARNING,
    "graphs are retained while the next forward runs",
    "with retain_graph=True or create_graph=True backward frees nothing, so two steps' activations are in memory at the peak",
    "leave out retain_graph=True; add up losses that share a graph, or retain it in all their backwards but the last",
    check,
    needs=needs_sample,
)
