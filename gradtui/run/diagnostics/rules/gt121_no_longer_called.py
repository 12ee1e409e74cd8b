"""GT121: parameters that trained before are in an optimizer, and nothing calls their modules any more."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.vocabulary import ParameterState
from gradtui.run.diagnostics.parameters import elements, in_state, named, optimized, paths
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_sample
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import subtree
from gradtui.run.state.series import RowHistory

_STEPS, _READINGS = 20, 4
"""Steps, and those whose norms were read, without a gradient. Most modules that run at random run again before."""
_TRAINED = 3
"""Readings of a gradient that a parameter must have had."""


def check(state: RunState) -> Iterator[Match]:
    """Match trainable parameters that had gradients and have none in the newest steps whose norms were read."""
    tree, owned, flow = state.tree, optimized(state), state.tree.gradient_flow
    if ParameterState.TRAINED.value not in tree.states or flow is None or not flow.called:
        return
    idle: list[int] = []
    last, read = 0, 0
    for index in in_state(tree, ParameterState.UNREACHED):
        module = tree.parameters[index].module
        if index not in owned or (flow.called[module] >= 0 and _is_module_read(state, index)):
            continue
        steps = _steps_with_gradient(state.history, index)
        since = sum(step > steps[-1] for step in state.history.steps) if steps else 0
        if len(steps) >= _TRAINED and since >= _READINGS and state.history.steps[-1] - steps[-1] >= _STEPS:
            idle.append(index)
            last, read = max(last, steps[-1]), max(read, since)
    if idle:
        yield Match(
            f"{named(tree, idle)} had a gradient until about step {last:,}, and none in the {read:,} steps that were read "
            "since: no forward uses what they compute",
            {"tensors": len(idle), "elements": elements(tree, idle), "last_step": last, "steps_read": read},
            paths(tree, idle),
            first_step=last + 1,
            is_exact=read >= 2 * _READINGS,
            level=None if _are_beside_frozen(state, idle) else Level.NOTE,
        )


def _steps_with_gradient(history: RowHistory, parameter: int) -> list[int]:
    """Return the steps in which a parameter had a gradient that is not zero, of those whose norms are kept."""
    return [step for step, row in zip(history.steps, history.rows) if parameter < len(row) and row[parameter]]


def _is_module_read(state: RunState, parameter: int) -> bool:
    """Return whether a gradient reaches any parameter of the same module."""
    tree = state.tree
    module = tree.parameters[parameter].module
    return any(
        tree.states[index] == ParameterState.TRAINED.value
        for index, info in enumerate(tree.parameters)
        if info.module == module
    )


def _are_beside_frozen(state: RunState, parameters: list[int]) -> bool:
    """Return whether each of them is in a submodule with frozen parameters, as an adapter is.

    A part of a model that is trained for some time only, such as an auxiliary head, hangs on the model itself.
    """
    tree = state.tree
    for parameter in parameters:
        module = tree.parameters[parameter].module
        while module >= 0 and "0" not in _flags(state, module):
            module = tree.modules[module].parent
        if module < 0 or tree.modules[module].parent < 0:
            return False
    return True


def _flags(state: RunState, module: int) -> str:
    where = subtree(state.tree.modules[module])
    return state.tree.trainable[where.start : where.stop]


RULE = Rule(
    "GT121",
    Level.WARNING,
    "parameters that trained are no longer used",
    "an adapter that was merged for an evaluation, or a branch that is switched off, stays in the optimizer and learns nothing",
    "unmerge the adapter after the evaluation, or take the parameters out of the optimizer",
    check,
    explains=frozenset({"GT201"}),
    needs=needs_sample,
)
