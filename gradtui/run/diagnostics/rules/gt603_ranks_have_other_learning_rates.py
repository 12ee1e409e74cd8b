"""GT603: the learning rates of ranks differ."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.ranks import divergence_match, has_come_before, needs_ranks, open_divergence
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import listed


def check(state: RunState) -> Iterator[Match]:
    """Match param groups with another learning rate on some ranks."""
    found = open_divergence(state, "rates")
    if found is not None:
        # What has come first is no consequence.
        explains = frozenset[str]() if has_come_before(state, "checksums", found.step) else None
        what = f"the learning rate of {listed(found.names)} differs"
        yield divergence_match(state, found, what, has_paths=False, explains=explains)


RULE = Rule(
    "GT603",
    Level.ERROR,
    "the learning rates of ranks differ",
    "ranks that apply the same gradient with different learning rates have different parameters from then on",
    "let schedulers depend on steps, or on a loss that is averaged over the ranks, and not on that of one rank",
    check,
    explains=frozenset({"GT604"}),
    needs=needs_ranks,
)
