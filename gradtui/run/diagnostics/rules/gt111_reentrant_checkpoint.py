"""GT111: trainable parameters are inside a reentrant checkpoint whose inputs require no gradient."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.vocabulary import GradMode, ParameterState
from gradtui.run.diagnostics.parameters import elements, named, paths
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_sample
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

_NOTHING = ParameterState.UNREACHED.value + ParameterState.ORPHAN.value


def check(state: RunState) -> Iterator[Match]:
    """Match trainable parameters without a gradient in modules that backward never recomputes."""
    tree, flow = state.tree, state.tree.gradient_flow
    if flow is None or GradMode.NOT_CHECKPOINTED.value not in flow.grad_modes:
        return
    lost = [
        index
        for index, parameter in enumerate(tree.parameters)
        if flow.grad_modes[parameter.module] == GradMode.NOT_CHECKPOINTED.value
        and tree.trainable[index] == "1"
        and tree.states[index] in _NOTHING
    ]
    if not lost:
        return
    yield Match(
        f"{named(tree, lost)} get no gradient: the reentrant checkpoint around them has no input that requires one",
        {"tensors": len(lost), "elements": elements(tree, lost)},
        paths(tree, lost),
    )


RULE = Rule(
    "GT111",
    Level.ERROR,
    "a reentrant checkpoint cuts off trainable parameters",
    "torch.utils.checkpoint with use_reentrant=True records nothing unless one of its tensor inputs requires a gradient",
    "pass use_reentrant=False, or let the input require a gradient (enable_input_require_grads)",
    check,
    explains=frozenset({"GT201", "GT112", "GT106"}),
    needs=needs_sample,
)
