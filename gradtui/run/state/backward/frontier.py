"""The freeze frontier: the modules where backward stops, and what keeps it out of those before them. Pure.

Backward starts at the loss and runs only where an earlier operation needs a gradient. It *stops* at a module that it runs in
but not out of, if something with parameters ran before that module in the same model and was never entered.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import field

from gradtui.dataclass import dataclass
from gradtui.protocol.vocabulary import ModuleInfo, ParameterState, Reach
from gradtui.run.state.backward.barriers import Barriers, barriers_of
from gradtui.run.state.tree_state import TreeState

_NEVER = 1 << 60
_ENDS = Reach.ENDS.value
_EMPTY_GRADIENT = (ParameterState.UNREACHED.value, ParameterState.CUT.value)


@dataclass(frozen=True)
class Frontier:
    """Where backward stops, as indexes of modules and parameters."""

    stops: tuple[int, ...] = ()
    """The topmost modules that backward runs in as a whole, and not out of."""
    stop_parameters: tuple[int, ...] = ()
    """Parameters at which backward ends, if the module that owns them also contains modules it never enters."""
    never_entered: tuple[int, ...] = ()
    """The topmost modules that ran, have parameters, and that backward never enters."""
    barriers: dict[range, Barriers] = field(default_factory=dict, compare=False, repr=False)
    """What keeps backward out of them, as far as `barriers_before` has found it, by the modules of a model: there can be tens
    of thousands, and each of many rows asks for it."""


def frontier(tree: TreeState, model: int | None = None) -> Frontier | None:
    """Return the frontier in one model (by its index) or in all; None until a step with a backward is sampled."""
    flow = tree.gradient_flow
    if flow is None or len(flow.reach) != len(tree.modules):
        return None
    modules, letters, inside = tree.modules, flow.reach, modules_of(tree, model)
    topmost = _topmost(modules, letters, Reach.NOT_ENTERED.value)
    never = tuple(index for index in topmost if index in inside and modules[index].subtree_parameters)
    calls = flow.called
    holding = with_ancestors(modules, never)
    stops: list[int] = []
    for part in tree.models:
        if part.root not in inside:
            continue
        end = part.root + modules[part.root].subtree_modules
        own = within(never, part.root, end)
        before = min((_first_call(calls, each, each + modules[each].subtree_modules) for each in own), default=_NEVER)
        index = letters.find(_ENDS, part.root, end)
        while index >= 0:
            if index in holding:
                after = index + 1
            else:
                after = index + modules[index].subtree_modules
                if before < _NEVER and before < _first_call(calls, index, after) < _NEVER:
                    stops.append(index)
            index = letters.find(_ENDS, after, end)
    upstream = set(tree.saved.upstream) if tree.saved is not None and holding else set[int]()
    parameters = sorted(
        i for i in upstream if i >= 0 and tree.parameters[i].module in holding and tree.states[i] not in _EMPTY_GRADIENT
    )
    return Frontier(tuple(stops), tuple(parameters), never)


def barriers_before(tree: TreeState, line: Frontier, inside: range) -> Barriers:
    """Return what keeps backward out of the modules that it never enters among those `inside` a model."""
    if inside not in line.barriers:
        line.barriers[inside] = barriers_of(tree, within(line.never_entered, inside.start, inside.stop))
    return line.barriers[inside]


def within(indices: tuple[int, ...], first: int, end: int) -> tuple[int, ...]:
    """Return those of ascending indexes that are in `range(first, end)`."""
    return indices[bisect_left(indices, first) : bisect_left(indices, end)]


def with_ancestors(modules: Sequence[ModuleInfo], indices: Sequence[int]) -> frozenset[int]:
    """Return these modules and all their ancestors."""
    found: set[int] = set()
    for start in indices:
        module = start
        while module >= 0 and module not in found:
            found.add(module)
            module = modules[module].parent
    return frozenset(found)


def modules_of(tree: TreeState, model: int | None) -> range:
    """Return the indexes of the modules of one model (by its index) or of all."""
    if model is None:
        return range(len(tree.modules))
    root = tree.models[model].root
    return range(root, root + tree.modules[root].subtree_modules)


def _topmost(modules: Sequence[ModuleInfo], letters: str, wanted: str) -> Iterator[int]:
    index = letters.find(wanted)
    while index >= 0:
        yield index
        index = letters.find(wanted, index + modules[index].subtree_modules)


def _first_call(calls: Sequence[int], start: int, stop: int) -> int:
    """Return the rank of the first call of a module or of one within it, `start:stop`; `_NEVER` if none was called."""
    if stop - start == 1:
        # Most modules of a large model contain no other.
        return calls[start] if calls[start] >= 0 else _NEVER
    part = calls[start:stop]
    first = min(part)
    return first if first >= 0 else min(filter((-1).__lt__, part), default=_NEVER)
