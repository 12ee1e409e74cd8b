"""GT211: the gradient of parameters is exactly zero, since an operation has the derivative zero."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.vocabulary import ParameterState
from gradtui.run.diagnostics.parameters import elements, in_state, named, optimized, paths
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
    zero = [
        index
        for index in in_state(tree, ParameterState.ZERO)
        if index in owned and not any(tree.ratios.of(index).values)
    ]
    if not zero or not has_stepped(state, _STEPS):
        return
    behind = {*found.parameters} if found is not None else set()
    known = [index for index in zero if tree.parameters[index].path in behind]
    if known and found is not None:
        functions = listed(
            sorted({f"{function} in {path}" if path else function for function, path, _ in found.operations})
        )
        yield Match(
            f"the gradient of {named(tree, known)} is exactly zero: {functions} has the derivative 0 everywhere",
            {"tensors": len(known), "elements": elements(tree, known)},
            paths(tree, known),
            remedy="pass the gradient on by hand: x + (x.round() - x).detach(), or use a smooth function",
            key="operation",
        )
    others = [index for index in zero if index not in known and len(tree.parameters[index].shape) > 1]
    if others:
        yield Match(
            f"the gradient of {named(tree, others)} is exactly zero in all measured steps",
            {"tensors": len(others), "elements": elements(tree, others)},
            paths(tree, others),
            level=Level.NOTE,
            key="others",
        )


RULE = Rule(
    "GT211",
    Level.WARNING,
    "gradients are exactly zero",
    "round, floor and sign are constant almost everywhere: backward runs through them and multiplies every gradient by 0",
    "look for saturated activations, a factor of 0 in the loss, or an operation without a derivative",
    check,
    needs=needs_sample,
)
