"""GT122: rows of a parameter are frozen by a gradient of zero, and the optimizer moves them."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.parameters import group_settings
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_sample
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

_SAMPLES = 2
"""Samples in which rows must have moved."""


def check(state: RunState) -> Iterator[Match]:
    """Match parameters of which the same rows had no gradient in all samples, and moved within the step."""
    by_path = {info.path: index for index, info in enumerate(state.tree.parameters)}
    for each in state.evidence.masked_rows.values():
        if each.moved < _SAMPLES or each.parameter not in by_path:
            continue
        who = "a hook sets" if each.by_hook else "the script sets"
        settings = group_settings(state, by_path[each.parameter]).replace(", and ", ": ", 1)
        yield Match(
            f"{who} the gradient of {each.masked:,} of {each.rows:,} rows of {each.parameter} to zero, and the optimizer "
            f"still moves them{settings}",
            {"rows": each.rows, "rows_without_gradient": each.masked, "samples": each.samples},
            (each.parameter,),
            is_exact=True,
            level=None if each.is_deliberate else Level.NOTE,
            key=each.parameter,
        )


RULE = Rule(
    "GT122",
    Level.WARNING,
    "rows without a gradient move",
    "a gradient of zero is not None: weight decay and momentum change the rows that were meant to stay",
    "set weight_decay and momentum to 0 for this parameter, or write the old rows back after each step",
    check,
    needs=needs_sample,
)
