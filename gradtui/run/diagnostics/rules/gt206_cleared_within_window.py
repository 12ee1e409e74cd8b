"""GT206: gradients are cleared between the backwards of one step, so that only the last of them count."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.vocabulary import ENTERED, Reach
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_optimizer, optimizer_name, windows_by_optimizer
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

_STEPS = 3
_SHARE = 0.5
"""Share of the steps that must lose backwards; fewer are what GT204 is about."""


def check(state: RunState) -> Iterator[Match]:
    """Match steps that apply only the last of several backwards, where nothing has used the gradients of the others."""
    calls = state.calls
    if calls is None or calls.gradients_used or calls.gradients_replaced or _input_gets_gradient(state):
        return
    # A gradient of what the model has computed, which is given to it afterwards.
    if calls.backwards_to_others:
        return
    for each in windows_by_optimizer(state):
        lossy = [window for window in each.windows if window.cleared and window.applied]
        steps = sum(window.count for window in lossy)
        if steps < _STEPS or steps <= _SHARE * each.steps:
            continue
        window = max(lossy, key=lambda window: window.count)
        yield Match(
            f"{window.cleared} of {window.cleared + window.applied} backwards of each step of "
            f"{optimizer_name(state, each.optimizer)} are cleared before it",
            {
                "backwards": window.cleared + window.applied,
                "backwards_lost": window.cleared,
                "steps": steps,
            },
            first_step=min(window.first_step for window in lossy),
            is_exact=calls.gradients_unused > 1,
            call="clearing",
            key=str(each.optimizer),
            optimizer=each.optimizer,
        )


def _input_gets_gradient(state: RunState) -> bool:
    """Return whether backward continues to the input of the first model. An attack on the input uses only that gradient."""
    flow = state.tree.gradient_flow
    if flow is None or not flow.called:
        return False
    roots = [model.root for model in state.tree.models if flow.reach[model.root] in ENTERED]
    first = min(roots, key=lambda root: flow.called[root], default=None)
    return first is not None and flow.reach[first] == Reach.THROUGH.value


RULE = Rule(
    "GT206",
    Level.ERROR,
    "gradients are cleared within the accumulation window",
    "the backwards before the last zero_grad() cost time and contribute nothing to the step",
    "call zero_grad() once per step, not once per backward",
    check,
    explains=frozenset({"GT205"}),
    needs=needs_optimizer,
)
