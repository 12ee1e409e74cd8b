"""Which modules' running statistics (BatchNorm) a freeze holds and an unfreeze releases, before it is made. Pure.

A module with statistics is held if its parameters, or those of a module around it, are all frozen. It then runs in eval mode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate

from gradtui.protocol.vocabulary import ModuleInfo
from gradtui.run.state.tree_state import TreeState

BUFFERS = ("running_mean", "running_var", "num_batches_tracked", "_u", "weight_u")
"""Buffers that a forward in training mode writes: those of norm modules and of both kinds of spectral norm."""
Kinds = tuple[tuple[str, int], ...]
"""Types of modules, with the number of each."""


def wholly_frozen(
    modules: Sequence[ModuleInfo], flags: Sequence[bool], named: Collection[int] | None = None
) -> list[bool]:
    """Return for each module whether it is, or is within, a module whose parameters are all frozen.

    Args:
        modules: all modules, depth-first.
        flags: for each parameter whether it is frozen.
        named: indexes of parameters, one of which must be in the frozen module; None for any.
    """
    # Number of parameters before each index that are frozen, and that are named.
    frozen_before = [0, *accumulate(flags)]
    named_before = [0, *accumulate(named is None or index in named for index in range(len(flags)))]
    whole: list[bool] = []
    for info in modules:
        first, end = info.first_parameter, info.first_parameter + info.subtree_parameters
        own = frozen_before[end] - frozen_before[first] == end - first and named_before[end] > named_before[first]
        # A parent comes before its children.
        whole.append(own or (info.parent >= 0 and whole[info.parent]))
    return whole


def held_by_freeze(tree: TreeState, named: Collection[int], stops: Collection[int]) -> Kinds:
    """Return whose statistics a freeze of the parameters `named` would begin to hold, if `stops` are those that train now."""
    collecting = dict.fromkeys(each.module for each in tree.buffers if each.path.rpartition(".")[2] in BUFFERS)
    held = tree.freezes.holding if tree.freezes is not None else ()
    new = [module for module in collecting if module not in held]
    if not new:
        return ()
    stopping = set(stops)
    flags = [flag == "0" or index in stopping for index, flag in enumerate(tree.trainable)]
    whole = wholly_frozen(tree.modules, flags, named if isinstance(named, range) else set(named))
    return _kinds(tree, (module for module in new if whole[module]))


def released_by_unfreeze(tree: TreeState, starts: Collection[int], *, restores: bool = False) -> Kinds:
    """Return whose statistics would be collected again if `starts` began to train.

    With `restores` these include the modules of freezes that have no parameters but these.
    """
    if tree.freezes is None or not tree.freezes.holding:
        return ()
    starting = set(starts)
    flags = [flag == "0" and index not in starting for index, flag in enumerate(tree.trainable)]
    whole = wholly_frozen(tree.modules, flags)
    undone = [each for each in tree.freezes.in_force if restores and starting.issuperset(each.parameters)]
    own = {module for each in undone for module in each.statistics}
    return _kinds(tree, (module for module in tree.freezes.holding if module in own or not whole[module]))


def _kinds(tree: TreeState, modules: Iterable[int]) -> Kinds:
    return tuple(Counter(tree.modules[module].type_name for module in modules).items())
