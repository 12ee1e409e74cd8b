"""Select and name the parameters that a rule is about. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gradtui.protocol.vocabulary import ENTERED, ParameterState, StateReason
from gradtui.run.state.model_records import reported_tree
from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text.units import listed, plural

_MAX_PATHS = 200
"""Maximum number of paths that a finding has. Its message and its evidence count all."""


def in_state(tree: TreeState, state: ParameterState, *reasons: StateReason) -> list[int]:
    """Return the indexes of the parameters in a state; with `reasons`, of those that have one of them."""
    wanted = {reason.value for reason in reasons}
    return [
        index
        for index, letter in enumerate(tree.states)
        if letter == state.value and (not wanted or (index < len(tree.reasons) and tree.reasons[index] in wanted))
    ]


def orphans_with_gradient(tree: TreeState) -> list[int]:
    """Return the indexes of the parameters that are in no optimizer although backward runs in the module that has them."""
    if tree.gradient_flow is None or len(tree.gradient_flow.reach) != len(tree.modules):
        return []
    letters = tree.gradient_flow.reach
    return [each for each in in_state(tree, ParameterState.ORPHAN) if letters[tree.parameters[each].module] in ENTERED]


def unowned_with_gradient(state: RunState) -> list[int]:
    """Return the orphans with a gradient, and those that the script moves itself, as it does with an average of weights."""
    tree, owned = state.tree, optimized(state)
    orphans = orphans_with_gradient(tree)
    if tree.gradient_flow is None or len(tree.gradient_flow.reach) != len(tree.modules):
        return []
    letters = tree.gradient_flow.reach
    moved = [each for each in in_state(tree, ParameterState.TRAINED) if each not in owned]
    return sorted([*orphans, *(each for each in moved if letters[tree.parameters[each].module] in ENTERED)])


def paths(tree: TreeState, indexes: Iterable[int]) -> tuple[str, ...]:
    """Return the paths of the first of these parameters."""
    return tuple(tree.parameters[index].path for index in list(indexes)[:_MAX_PATHS])


def named(tree: TreeState, indexes: Sequence[int]) -> str:
    """Return the first few by name, and how many more: `a.weight, a.bias, b.weight and 9 more (1,024 elements)`."""
    names = listed([tree.parameters[index].path for index in indexes])
    return f"{names} ({plural(elements(tree, indexes), 'element')})"


def elements(tree: TreeState, indexes: Iterable[int]) -> int:
    """Return the number of elements of these parameters."""
    return sum(tree.parameters[index].count for index in indexes)


def are(indexes: Sequence[int]) -> str:
    """Return the verb for this many subjects."""
    return "is" if len(indexes) == 1 else "are"


def needs_frozen(state: RunState) -> str | None:
    """Return why no rule about frozen parameters could match; None if the models that trained last have some."""
    trainable = reported_tree(state).trainable
    if "0" in trainable:
        return None
    return "no parameter is frozen at the end" if "1" in trainable else "no step was sampled"


def optimized(state: RunState) -> set[int]:
    """Return the indexes of the parameters that some living optimizer has."""
    return {index for optimizer in state.optimizers if not optimizer.freed for index in optimizer.parameters}


def owner_of(state: RunState, parameter: int) -> tuple[int, int] | None:
    """Return the indexes of the optimizer and the group that have a parameter, None if none has it."""
    for number, optimizer in enumerate(state.optimizers):
        if not optimizer.freed and parameter in optimizer.parameters:
            at = optimizer.parameters.index(parameter)
            return number, optimizer.group_of[at] if at < len(optimizer.group_of) else 0
    return None


def group_settings(state: RunState, parameter: int) -> str:
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
