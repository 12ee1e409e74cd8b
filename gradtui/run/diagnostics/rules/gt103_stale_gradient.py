"""GT103: a gradient from before the freeze is applied at every step."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.vocabulary import ParameterState, StateReason
from gradtui.run.diagnostics.parameters import elements, in_state, named, needs_frozen, paths
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState


def check(state: RunState) -> Iterator[Match]:
    """Match frozen parameters that still have the gradient of an earlier step."""
    tree = state.tree
    moved = in_state(tree, ParameterState.MOVED, StateReason.STALE_GRADIENT)
    if not moved:
        return
    yield Match(
        f"{named(tree, moved)} {'keeps' if len(moved) == 1 else 'keep'} a gradient from before the freeze, "
        "and each step applies it again",
        {"tensors": len(moved), "elements": elements(tree, moved)},
        paths(tree, moved),
        is_exact=True,
    )


RULE = Rule(
    "GT103",
    Level.ERROR,
    "a frozen parameter keeps an old gradient",
    "requires_grad = False stops new gradients, but the optimizer applies any .grad that is still there",
    "set .grad = None when you freeze",
    check,
    needs=needs_frozen,
)
