"""GT115: optimizers keep more state than they need."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from gradtui.diagnostics.parameters import elements, named, paths
from gradtui.diagnostics.rule import Match, Rule
from gradtui.diagnostics.windows import needs_optimizer, optimizer_name
from gradtui.state.findings import Level
from gradtui.state.run_state import RunState
from gradtui.text import plural, size_text

_NAMED = 3


def check(state: RunState) -> Iterator[Match]:
    """Match state of frozen parameters, and parameters that two optimizers which both step have in common."""
    unused = state.unused_state
    if unused is not None and unused.tensors:
        more = f" and {unused.tensors - _NAMED:,} more" if unused.tensors > _NAMED else ""
        yield Match(
            f"optimizers keep {size_text(unused.bytes)} of state for {plural(unused.tensors, 'frozen tensor')}, unused since "
            f"step {unused.since_step:,}: {', '.join(unused.parameters[:_NAMED])}{more}",
            {"tensors": unused.tensors, "bytes": unused.bytes, "since_step": unused.since_step},
            unused.parameters,
            first_step=unused.since_step,
            is_exact=True,
            remedy="if they stay frozen, delete it: optimizer.state.pop(parameter, None)",
            key="frozen",
        )
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
    "optimizers keep more state than they need",
    "an optimizer keeps its state, such as Adam's two moments, for every parameter that it has updated: freezing frees none of "
    "it, and of two optimizers each keeps its own",
    "give each parameter to one optimizer, unless the optimizers are meant to take turns",
    check,
    needs=needs_optimizer,
)
