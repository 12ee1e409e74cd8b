"""GT601: ranks differ in which parameters require a gradient."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.ranks import divergence_match, needs_ranks, open_divergence
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import listed


def check(state: RunState) -> Iterator[Match]:
    """Match parameters that are trainable on some ranks only."""
    found = open_divergence(state, "trainable")
    if found is not None:
        yield divergence_match(state, found, f"requires_grad of {listed(found.names)} differs")


RULE = Rule(
    "GT601",
    Level.ERROR,
    "ranks train different parameters",
    "a parameter that is frozen on one rank gets no gradient there, while the others wait for it or apply their own",
    "freeze and unfreeze on all ranks at the same step, from a condition that has the same value on all of them",
    check,
    explains=frozenset({"GT602", "GT604"}),
    needs=needs_ranks,
)
