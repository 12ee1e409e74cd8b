"""Which modules hold the bytes at the peak of the profiled step. Pure."""

from __future__ import annotations

from itertools import accumulate

from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree.model_parts import children

_MAX = 0.5
"""Of the bytes of a module: a submodule with more than this stands in its place."""


def peak_owners(state: RunState) -> list[tuple[int, int]]:
    """Return the modules that hold the peak, with their bytes, largest first; empty while unknown.

    The bytes of a module include those of its submodules, or are its own where its submodules are owners too. A module
    gives way to its submodules, and to what it holds itself, as long as one of them holds most of it. So a stack of equal
    blocks is one owner.
    """
    traced, tree = state.step_profile, state.tree
    if traced is None or len(traced.at_peak) != len(tree.modules):
        return []
    sums = [0, *accumulate(traced.at_peak)]

    def held(index: int) -> int:
        return sums[index + tree.modules[index].subtree_modules] - sums[index]

    owners = {model.root: held(model.root) for model in tree.models if held(model.root)}
    while owners:
        largest = max(owners, key=lambda index: owners[index])
        inside = {index: held(index) for index in children(tree, largest) if held(index)}
        if owners[largest] != held(largest) or max(inside.values(), default=0) <= _MAX * owners[largest]:
            break
        del owners[largest]
        owners |= inside
        if traced.at_peak[largest]:
            owners[largest] = traced.at_peak[largest]
    return sorted(owners.items(), key=lambda entry: -entry[1])
