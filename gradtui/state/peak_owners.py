"""Which modules hold the bytes at the peak of the profiled step. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.protocol.vocabulary import ModuleInfo
from gradtui.state.run_state import RunState

_MOST = 0.5
"""Of the bytes of a module: a submodule with more than this stands in its place."""


def peak_owners(state: RunState) -> list[tuple[int, int]]:
    """Return the modules that hold the peak, with their bytes, submodules included, largest first; empty while unknown.

    No module is part of another one. A module gives way to its submodules, and to what it holds itself, as long as one of them
    holds most of it: so a stack of equal blocks is one owner.
    """
    traced, modules = state.traced, state.tree.modules
    if traced is None or len(traced.at_peak) != len(modules):
        return []
    held = _with_submodules(modules, traced.at_peak)
    owners = {index: held[index] for index, module in enumerate(modules) if module.parent < 0 and held[index]}
    while owners:
        largest = max(owners, key=lambda index: owners[index])
        inside = modules[largest]
        below = range(largest + 1, largest + inside.subtree_modules)
        children = {index: held[index] for index in below if modules[index].parent == largest and held[index]}
        if owners[largest] != held[largest] or max(children.values(), default=0) <= _MOST * owners[largest]:
            break
        del owners[largest]
        owners |= children
        if traced.at_peak[largest]:
            owners[largest] = traced.at_peak[largest]
    return sorted(owners.items(), key=lambda entry: -entry[1])


def _with_submodules(modules: Sequence[ModuleInfo], own: Sequence[int]) -> list[int]:
    held = list(own)
    # Depth first: submodules come after the module that they are in.
    for index in range(len(modules) - 1, -1, -1):
        if modules[index].parent >= 0:
            held[modules[index].parent] += held[index]
    return held
