"""GT101: frozen parameters move, because their gradient is zeros and not None."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.vocabulary import ParameterState, StateReason
from gradtui.run.diagnostics.parameters import are, elements, in_state, named, needs_frozen, owner_of, paths
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState


def check(state: RunState) -> Iterator[Match]:
    """Match frozen parameters that an optimizer step with a gradient of zeros has moved."""
    tree = state.tree
    moved = in_state(tree, ParameterState.MOVED, StateReason.ZERO_GRADIENT, StateReason.DECAY)
    if not moved:
        return
    settings = _settings(state, moved[0])
    yield Match(
        f"{named(tree, moved)} {are(moved)} frozen and {'moves' if len(moved) == 1 else 'move'}: "
        f"the gradient is zeros, not None{settings}",
        {"tensors": len(moved), "elements": elements(tree, moved)},
        paths(tree, moved),
        is_exact=True,
    )


def _settings(state: RunState, parameter: int) -> str:
    """Return `, and momentum 0.9 and weight decay 0.01 still apply`, as far as they are known."""
    owner, read = owner_of(state, parameter), state.groups.optimizers if state.groups is not None else ()
    if owner is None or owner[0] >= len(read) or owner[1] >= len(read[owner[0]]):
        return ""
    group = read[owner[0]][owner[1]]
    further = dict(group.further)
    betas = further.get("betas")
    first_beta = ("moments with beta", betas[0]) if isinstance(betas, tuple) and betas else ("", None)
    settings = ("weight decay", group.weight_decay), ("momentum", further.get("momentum")), first_beta
    words = [f"{name} {value:g}" for name, value in settings if isinstance(value, float) and value]
    is_one = len(words) == 1 and not words[0].startswith("moments")
    return f", and {' and '.join(words)} still {'applies' if is_one else 'apply'}" if words else ""


RULE = Rule(
    "GT101",
    Level.ERROR,
    "frozen parameters move: their gradient is zeros",
    "an optimizer skips a parameter only if its .grad is None; with zeros, momentum and weight decay still change it",
    "set .grad = None when you freeze, for example by optimizer.zero_grad(set_to_none=True)",
    check,
    needs=needs_frozen,
)
