"""GT115: two optimizers own the same parameters."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from gradtui.diagnostics.parameters import elements, named, paths
from gradtui.diagnostics.rule import Match, Rule
from gradtui.diagnostics.windows import optimizer_name
from gradtui.state.findings import Level
from gradtui.state.run_state import RunState


def check(state: RunState) -> Iterator[Match]:
    """Match parameters that two optimizers which both step have in common."""
    stepping = [
        (number, optimizer)
        for number, optimizer in enumerate(state.optimizers)
        if not optimizer.freed and number < len(state.optimizer_steps) and state.optimizer_steps[number]
    ]
    for (first, one), (second, other) in combinations(stepping, 2):
        common = sorted(set(one.parameters) & set(other.parameters))
        if common:
            yield Match(
                f"{optimizer_name(state, first)} and {optimizer_name(state, second)} both own {named(state.tree, common)}",
                {"tensors": len(common), "elements": elements(state.tree, common)},
                paths(state.tree, common),
                is_exact=True,
                key=f"{first} {second}",
            )


RULE = Rule(
    "GT115",
    Level.NOTE,
    "two optimizers own the same parameters",
    "each keeps its own momentum for them, and both apply the same gradient unless it is cleared in between",
    "give each parameter to one optimizer, unless the optimizers are meant to take turns",
    check,
)
