"""GT215: an optimizer is made anew at nearly every step, so that its state begins at zero each time."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_optimizer
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

_REMADE = 5


def check(state: RunState) -> Iterator[Match]:
    """Match optimizers that replaced one of the same parameters after a step or two."""
    for each in state.script_calls.remade.values():
        if each.remade < _REMADE or each.remade < each.longer:
            continue
        effect = (
            "its state begins at zero each time"
            if each.has_state
            else "it has no state, so that only costs time, and schedulers keep the former one"
        )
        yield Match(
            f"{each.type_name} was made anew {each.remade:,} times, after a step or two each: {effect}",
            {"remade": each.remade, "remade_later": each.longer, "has_state": each.has_state},
            first_step=each.first_step,
            is_exact=True,
            level=None if each.has_state else Level.NOTE,
            site=each.site,
            key=each.type_name,
        )


RULE = Rule(
    "GT215",
    Level.WARNING,
    "the optimizer is made anew at each step",
    "moments average the gradients of many steps: in its first step Adam moves every weight by the learning rate, whatever the "
    "size of the gradient, and momentum is none",
    "make the optimizer once, before the loop",
    check,
    needs=needs_optimizer,
)
