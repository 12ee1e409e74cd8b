"""GT203: nothing clears the gradients, so every step applies those of all steps before."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_optimizer, optimizer_name, windows_by_optimizer
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

_STEPS = 3
"""Steps that must have applied the gradients of the step before: a script may clear them for the first time late."""
_SHARE = 0.75
"""Share of the steps that must have done so: some scripts clear the gradients once an epoch, by mistake."""


def check(state: RunState) -> Iterator[Match]:
    """Match an optimizer whose gradients nothing has cleared between most of its steps."""
    calls = state.calls
    compared = (
        {index: (kept, cleared) for index, kept, cleared in calls.gradients_compared} if calls is not None else {}
    )
    for each in windows_by_optimizer(state):
        kept, cleared = compared.get(each.optimizer, (0, 0))
        carried = each.count(lambda window: window.carries and window.applied > 0)
        if carried < max(_STEPS, _SHARE * (each.steps - 1)) or kept < max(1, _STEPS * cleared):
            continue
        yield Match(
            f"nothing cleared the gradients before {carried:,} of {each.steps:,} steps of "
            f"{optimizer_name(state, each.optimizer)}: each of them applies the gradients of the steps before it again",
            {"steps": each.steps, "steps_with_old_gradients": carried},
            first_step=each.first(lambda window: window.carries),
            is_exact=kept > 1,
            call="step",
            key=str(each.optimizer),
            optimizer=each.optimizer,
        )


RULE = Rule(
    "GT203",
    Level.ERROR,
    "gradients are never cleared",
    "backward() adds to .grad, so the gradient of a step becomes the sum over all steps so far",
    "call optimizer.zero_grad() once before or after each step",
    check,
    explains=frozenset({"GT204", "GT210", "GT220"}),
    needs=needs_optimizer,
)
