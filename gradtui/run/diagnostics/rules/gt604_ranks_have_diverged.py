"""GT604: parameters that DistributedDataParallel keeps equal are different on some ranks."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.ranks import divergence_match, needs_ranks, open_divergence
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import listed


def check(state: RunState) -> Iterator[Match]:
    """Match replicas whose bits differ."""
    found = open_divergence(state, "checksums")
    if found is not None:
        values = "values of " + listed(found.names)
        yield divergence_match(state, found, f"{values} differ")


RULE = Rule(
    "GT604",
    Level.ERROR,
    "ranks have diverged: copies of parameters are not equal",
    "DistributedDataParallel makes the copies equal once and averages gradients so that they stay so; it never compares them",
    "call the wrapper and not its .module; look for what one rank does alone, or for parameters that were unfrozen or added "
    "after wrapping; wrap the model again after such a change",
    check,
    needs=needs_ranks,
)
