"""Estimate what autograd no longer keeps for backward if some parameters are frozen. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

from gradtui.protocol.vocabulary import ModuleInfo, ParameterState
from gradtui.run.state.selectors import model_of
from gradtui.run.state.tree.model_parts import is_norm
from gradtui.run.state.tree_state import TreeState

_UNREACHED = ParameterState.UNREACHED.value

_SAVE_INPUT_FOR_WEIGHT = ("Linear", "Conv1d", "Conv2d", "Conv3d", "Embedding", "Bilinear")
"""Types whose operation saves its input only if its weight requires a gradient: the gradient of the input needs the weight
alone (`linear`, `mm` and `convolution` in PyTorch's tools/autograd/derivatives.yaml)."""


def freed_bytes(tree: TreeState, stops: frozenset[int], most: int | None = None) -> tuple[int | None, bool]:
    """Return the bytes that autograd no longer keeps once these parameters are frozen, and whether it may free more.

    Autograd records an operation only if one of its inputs requires a gradient (PyTorch: Autograd mechanics, "Setting
    requires_grad"). A module whose own parameters are all frozen keeps tensors only for a trainable parameter before it.
    `most` bounds the time: nothing is computed if more than `most` other modules keep tensors for these parameters, or any do
    among more than ten times as many modules.
    """
    saved, flow = tree.saved, tree.gradient_flow
    if saved is None or flow is None or not saved.upstream or not flow.called:
        return None, False
    owners = {tree.parameters[index].module for index in stops}
    passing: set[int] = set()
    if not stops.isdisjoint(saved.upstream):
        if most is not None and len(tree.modules) > 10 * most:
            return None, False
        passing = {index for index, upstream in enumerate(saved.upstream) if upstream in stops}
        if most is not None and len(passing) > most:
            return None, False
    earliest = _Earliest(tree, stops)
    freed, at_least = 0, False
    for index in owners | passing:
        size, module = saved.by_module[index], tree.modules[index]
        if not size or _own_trains(tree, module, stops):
            continue
        kept: bool | None = False
        if _beyond(tree, saved.upstream, saved.upstream[index], stops) >= 0:
            kept = _kept_for_upstream(module, index in owners)
        elif index in passing and earliest.is_before(index):
            # The gradient of the parameter that still trains may come through here, or not.
            kept = None
        freed += size if kept is False else 0
        at_least |= kept is None
    return (freed, at_least) if freed or not at_least else (None, False)


def _beyond(tree: TreeState, upstream: Sequence[int], parameter: int, stops: frozenset[int]) -> int:
    """Return the first parameter that still trains where the gradient of this one passes on, -1 where none is known.

    `upstream` names one parameter for each module. A gradient that comes to a parameter of a module without submodules also
    passes on to what is upstream of that module.
    """
    visited = set()
    while parameter in stops and parameter not in visited:
        visited.add(parameter)
        module = tree.parameters[parameter].module
        parameter = upstream[module] if tree.modules[module].subtree_modules == 1 else -1
    return -1 if parameter in stops else parameter


def _own_trains(tree: TreeState, module: ModuleInfo, stops: frozenset[int]) -> bool:
    """Return whether a parameter for whose gradient the module's own operations keep tensors still trains."""
    own = range(module.first_parameter, module.first_parameter + module.own_parameters)
    if tree.trainable.find("1", own.start, own.stop) < 0:
        return False
    weights = (
        [i for i in own if len(tree.parameters[i].shape) > 1] if module.type_name in _SAVE_INPUT_FOR_WEIGHT else own
    )
    return any(tree.trainable[i] == "1" and i not in stops for i in weights)


def _kept_for_upstream(module: ModuleInfo, has_stopped: bool) -> bool | None:
    """Return whether a module whose own parameters are frozen keeps all that it kept, so that the gradient can pass."""
    if not has_stopped or is_norm(module):
        return True
    return False if module.type_name in _SAVE_INPUT_FOR_WEIGHT else None


class _Earliest:
    """Says whether a parameter that still trains may be before a module."""

    def __init__(self, tree: TreeState, stops: frozenset[int]) -> None:
        self._tree, self._stops = tree, stops
        self._called = tree.gradient_flow.called if tree.gradient_flow is not None else ()

    def is_before(self, index: int) -> bool:
        """Return whether one belongs to a module that was called before this one, or in it."""
        first = self._first_calls.get(model_of(self._tree, index))
        inside = range(index, index + self._tree.modules[index].subtree_modules)
        return first is not None and (first < self._called[index] or not self._modules.isdisjoint(inside))

    @cached_property
    def _modules(self) -> set[int]:
        """The modules of the parameters that still train."""
        tree = self._tree
        return {
            tree.parameters[index].module
            for index, flag in enumerate(tree.trainable)
            if flag == "1" and index not in self._stops and tree.states[index] != _UNREACHED
        }

    @cached_property
    def _first_calls(self) -> dict[int, int]:
        """By model: the rank of the first call among these modules."""
        first: dict[int, int] = {}
        for module in self._modules:
            model = model_of(self._tree, module)
            first[model] = min(first.get(model, self._called[module]), self._called[module])
        return first


def keeps_enough(tree: TreeState, starts: Collection[int]) -> bool:
    """Return whether autograd already keeps all that the gradients of these parameters need: those of norms in its way."""
    saved = tree.saved
    if saved is None or not saved.upstream:
        return False
    modules = {tree.parameters[index].module for index in starts}
    return all(is_norm(tree.modules[m]) and saved.upstream[m] >= 0 and saved.by_module[m] > 0 for m in modules)
