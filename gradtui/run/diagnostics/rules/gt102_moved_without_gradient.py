"""GT102: the optimizer moves frozen parameters that have no gradient."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.vocabulary import ParameterState, StateReason
from gradtui.run.diagnostics.parameters import are, elements, in_state, named, needs_frozen, optimized, paths
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState


def check(state: RunState) -> Iterator[Match]:
    """Match frozen parameters of an optimizer that change within its step, although `.grad` is None."""
    tree, owned = state.tree, optimized(state)
    moved = [each for each in in_state(tree, ParameterState.MOVED, StateReason.NO_GRADIENT) if each in owned]
    if moved:
        yield Match(
            f"{named(tree, moved)} {are(moved)} frozen and moved by the optimizer without a gradient",
            {"tensors": len(moved), "elements": elements(tree, moved)},
            paths(tree, moved),
            is_exact=True,
        )
    written = [each for each in in_state(tree, ParameterState.MOVED, StateReason.OUTSIDE_STEP) if each in owned]
    if written:
        yield Match(
            f"{named(tree, written)} {are(written)} frozen, and the script writes to {'it' if len(written) == 1 else 'them'} "
            "outside of the optimizer's step",
            {"tensors": len(written), "elements": elements(tree, written)},
            paths(tree, written),
            level=Level.NOTE,
            remedy="if the script decays or clamps its weights itself, skip those that require no gradient",
            key="outside",
        )


RULE = Rule(
    "GT102",
    Level.ERROR,
    "the optimizer moves parameters without a gradient",
    "the optimizer's step does not skip parameters whose .grad is None, for example when it applies weight decay",
    "leave frozen parameters out of its groups, or skip them in its step",
    check,
    needs=needs_frozen,
)
