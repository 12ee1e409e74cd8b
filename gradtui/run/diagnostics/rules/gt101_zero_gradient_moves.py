"""GT101: frozen parameters move, because their gradient is zeros and not None."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.vocabulary import ParameterState, StateReason
from gradtui.run.diagnostics.parameters import are, elements, group_settings, in_state, named, needs_frozen, paths
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState


def check(state: RunState) -> Iterator[Match]:
    """Match frozen parameters that an optimizer step with a gradient of zeros has moved."""
    tree = state.tree
    moved = in_state(tree, ParameterState.MOVED, StateReason.ZERO_GRADIENT, StateReason.DECAY)
    if not moved:
        return
    settings = group_settings(state, moved[0])
    yield Match(
        f"{named(tree, moved)} {are(moved)} frozen and {'moves' if len(moved) == 1 else 'move'}: "
        f"the gradient is zeros, not None{settings}",
        {"tensors": len(moved), "elements": elements(tree, moved)},
        paths(tree, moved),
        is_exact=True,
    )


RULE = Rule(
    "GT101",
    Level.ERROR,
    "frozen parameters move: their gradient is zeros",
    "an optimizer skips a parameter only if its .grad is None; with zeros, momentum and weight decay still change it",
    "set .grad = None when you freeze, for example by optimizer.zero_grad(set_to_none=True)",
    check,
    needs=needs_frozen,
)
