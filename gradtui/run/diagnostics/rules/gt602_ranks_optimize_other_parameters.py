"""GT602: the optimizers of ranks have different parameters."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.ranks import divergence_match, has_come_before, needs_ranks, open_divergence
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import listed


def check(state: RunState) -> Iterator[Match]:
    """Match parameters that only some ranks have in an optimizer."""
    found = open_divergence(state, "owned")
    if found is not None:
        # What has come first is no consequence.
        explains = frozenset({"GT603"}) if has_come_before(state, "checksums", found.step) else None
        yield divergence_match(
            state, found, f"whether optimizers have {listed(found.names)} differs", explains=explains
        )


RULE = Rule(
    "GT602",
    Level.ERROR,
    "the optimizers of ranks have different parameters",
    "a parameter that the optimizer of one rank lacks stays as it is there, while the others move it",
    "build the optimizer from the same parameters on all ranks, after the last change of what trains",
    check,
    explains=frozenset({"GT603", "GT604"}),
    needs=needs_ranks,
)
