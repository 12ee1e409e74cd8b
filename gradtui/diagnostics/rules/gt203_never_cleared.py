"""GT203: nothing clears the gradients, so every step applies those of all steps before."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.diagnostics.rule import Match, Rule
from gradtui.diagnostics.windows import needs_optimizer, optimizer_name, windows_by_optimizer
from gradtui.state.findings import Level
from gradtui.state.run_state import RunState

_STEPS = 3
"""Steps that must have applied the gradients of the step before: a script may clear them for the first time late."""


def check(state: RunState) -> Iterator[Match]:
    """Match an optimizer whose gradients nothing has cleared between its steps."""
    calls = state.calls
    if calls is None or calls.clears or not calls.kept_gradients or calls.cleared_gradients:
        return
    for each in windows_by_optimizer(state):
        carried = each.count(lambda window: window.carries)
        if carried < _STEPS or carried < each.steps - 1:
            continue
        yield Match(
            f"nothing cleared the gradients in {each.steps:,} steps of {optimizer_name(state, each.optimizer)}: "
            "each step applies the gradients of all steps before it again",
            {"steps": each.steps, "steps_with_old_gradients": carried, "zero_grad_calls": calls.clears},
            first_step=each.first(lambda window: window.carries),
            is_exact=calls.kept_gradients > 1,
            call="step",
            key=str(each.optimizer),
        )


RULE = Rule(
    "GT203",
    Level.ERROR,
    "gradients are never cleared",
    "backward() adds to .grad, so the gradient of a step becomes the sum over all steps so far",
    "call optimizer.zero_grad() once before or after each step",
    check,
    explains=frozenset({"GT210", "GT204"}),
    needs=needs_optimizer,
)
