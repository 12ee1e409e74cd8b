"""GT227: a view stands where a permutation is meant."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_sample
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState


def check(state: RunState) -> Iterator[Match]:
    """Match each view that was found in the graph of a loss."""
    found = state.evidence.mixed_axes
    for before, after, module in found.views if found is not None else ():
        where = f" in {module}" if module else ""
        yield Match(
            f"a view{where} takes {before} as {after}: the sizes are those of a permutation, and the elements stay in their "
            "order, so that rows mix the values of several positions or samples",
            {"before": str(before), "after": str(after), "module": module},
            (module,) if module else (),
            first_step=found.step if found is not None else None,
            is_exact=True,
            key=module,
        )


RULE = Rule(
    "GT227",
    Level.WARNING,
    "a view stands where a permutation is meant",
    "view() and reshape() take the elements in their order in memory and move none: a row of the result is no position, and no "
    "sample",
    "use transpose() or permute() for the order of the dimensions, and reshape() after it to merge some: "
    "x.flatten(2).transpose(1, 2)",
    check,
    needs=needs_sample,
)
