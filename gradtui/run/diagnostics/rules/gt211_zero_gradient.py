"""GT211: the gradient of parameters is exactly zero, since an operation has the derivative zero."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.vocabulary import ParameterState
from gradtui.run.diagnostics.parameters import elements, group_settings, in_state, named, optimized, paths
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import has_stepped, needs_sample
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import listed

_STEPS = 5
"""Steps before it is said: the second factor of a LoRA update begins with zeros, so the first has no gradient at first."""


def check(state: RunState) -> Iterator[Match]:
    """Match parameters of an optimizer with gradients of zeros in all measured steps."""
    tree, owned, found = state.tree, optimized(state), state.evidence.zero_derivatives
    zero = [index for index in in_state(tree, ParameterState.ZERO) if index in owned and _is_always_zero(state, index)]
    if not zero or not has_stepped(state, _STEPS):
        return
    behind = {*found.parameters} if found is not None else set()
    known = [index for index in zero if tree.parameters[index].path in behind]
    if known and found is not None:
        functions = listed(
            sorted({f"{function} in {path}" if path else function for function, path, _ in found.operations})
        )
        yield Match(
            f"the gradient of {named(tree, known)} is exactly zero: {functions} has the derivative 0 everywhere"
            f"{_what_moves_them(state, known)}",
            {"tensors": len(known), "elements": elements(tree, known)},
            paths(tree, known),
            remedy="pass the gradient on by hand: x + (x.round() - x).detach(), or use a smooth function",
            key="operation",
        )
    others = [index for index in zero if index not in known and len(tree.parameters[index].shape) > 1]
    factors = [index for index in others if _is_zeros(state, index)]
    if len(factors) > 1:
        others = [index for index in others if index not in factors]
        yield Match(
            f"the gradient of {named(tree, factors)} is exactly zero in all measured steps, and they are zeros themselves",
            {"tensors": len(factors), "elements": elements(tree, factors)},
            paths(tree, factors),
            level=Level.NOTE,
            remedy="if one multiplies the output of the other, as in LoRA, initialise one of them with other values",
            key="factors",
        )
    if others:
        yield Match(
            f"the gradient of {named(tree, others)} is exactly zero in all measured steps{_what_moves_them(state, others)}",
            {"tensors": len(others), "elements": elements(tree, others)},
            paths(tree, others),
            level=Level.NOTE,
            key="others",
        )


def _is_always_zero(state: RunState, parameter: int) -> bool:
    """Return whether a parameter has not moved, or its norm was zero in all steps, so that weight decay has moved it."""
    if not any(state.tree.ratios.of(parameter).values):
        return True
    norms = [row[parameter] for row in state.history.rows if parameter < len(row)]
    return len(norms) >= _STEPS and not any(norms)


def _is_zeros(state: RunState, parameter: int) -> bool:
    """Return whether the values of a parameter were all zero when they were measured last."""
    measured = state.tree.gradient_figures.get(parameter)
    return measured is not None and measured[1].weight_norm == 0.0


def _what_moves_them(state: RunState, parameters: list[int]) -> str:
    moved = [index for index in parameters if any(state.tree.ratios.of(index).values)]
    return group_settings(state, moved[0]) if moved else ""


RULE = Rule(
    "GT211",
    Level.WARNING,
    "gradients are exactly zero",
    "round, floor and sign are constant almost everywhere: backward runs through them and multiplies every gradient by 0",
    "look for saturated activations, a factor of 0 in the loss, or an operation without a derivative",
    check,
    needs=needs_sample,
)
