"""Find modules that run inside a model without being registered with it, such as those in a Python list.

`parameters()`, `state_dict()` and `to()` of the model leave them out. Sampled steps record every call of a module. Runs on the
training thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Container, Iterable, Mapping

import torch
from torch import nn
from torch.optim import Optimizer

from gradtui.probe.model import ModuleTree, optimizer_membership
from gradtui.probe.steps import ProbeContext
from gradtui.probe.torch_private.module_walk import modules_of
from gradtui.probe.torch_private.private_names import is_lazy
from gradtui.protocol.events import UnregisteredFound
from gradtui.protocol.vocabulary import UnregisteredModule

Calls = Mapping[int, tuple["weakref.ref[nn.Module]", int]]
"""id of a module -> weak reference to the module, index of the module that called it."""

_MAX = 64
"""Maximum number of modules that are described. Further ones are only counted."""


class Unregistered:
    """The unregistered modules found so far that are alive."""

    def __init__(self, context: ProbeContext) -> None:
        self._emit, self._clock = context.emit, context.clock
        self._seen: dict[int, tuple[weakref.ref[nn.Module], UnregisteredModule]] = {}
        self._reported: tuple[UnregisteredModule, ...] = ()

    def parameters(self) -> set[int]:
        """Return the ids of the parameters of these modules."""
        living = (module for reference, _ in self._seen.values() if (module := reference()) is not None)
        return {id(parameter) for module in living for parameter in module.parameters()}

    def on_step_post(self, calls: Calls, tree: ModuleTree, optimizers: Iterable[Optimizer], step: int) -> None:
        """Record the calls that modules without a known parent made in a sampled step, after its optimizer step."""
        if not (calls or self._seen or self._reported):
            return
        self._seen = {key: seen for key, seen in self._seen.items() if seen[0]() is not None}
        owned = optimizer_membership.owners(optimizers) if calls else {}
        inside: dict[int, set[int]] = {}
        owners = tree.owners
        for key, (reference, caller) in calls.items():
            root = tree.roots[caller]
            if root not in inside:
                inside[root] = {id(each) for index, each in tree.live_parameters() if tree.roots[owners[index]] == root}
            module = reference()
            found = _describe(module, tree, caller, inside[root], owned) if module is not None else None
            if found is not None:
                self._seen[key] = reference, found
        modules = tuple(module for _, module in self._seen.values())
        if modules != self._reported:
            self._reported = modules
            self._emit(UnregisteredFound(self._clock.at(), step, modules[:_MAX], max(0, len(modules) - _MAX)))


def _describe(
    module: nn.Module, tree: ModuleTree, caller: int, inside: set[int], owned: Container[int]
) -> UnregisteredModule | None:
    """Describe a module; None where the caller's model contains the module, or all its parameters.

    `inside` has the ids of that model's parameters, `owned` those of the parameters that optimizers own.
    """
    index = tree.index_of(module)
    parameters = (each for part in modules_of(module) for each in part._parameters.values())  # noqa: SLF001 - as `modules_of`
    own = {id(each): each for each in parameters if each is not None and id(each) not in inside and not is_lazy(each)}
    if not own or (index >= 0 and tree.roots[index] == tree.roots[caller]):
        return None
    return UnregisteredModule(
        caller=_name(tree, caller),
        type_name=type(module).__name__,
        model=_name(tree, index) if index >= 0 else None,
        parameters=_elements(own.values()),
        trainable=_elements(tensor for tensor in own.values() if tensor.requires_grad),
        in_optimizer=_elements(tensor for key, tensor in own.items() if key in owned),
        with_gradient=_elements(tensor for tensor in own.values() if tensor.is_leaf and tensor.grad is not None),
    )


def _name(tree: ModuleTree, index: int) -> str:
    return tree.modules[index].path or tree.modules[index].name


def _elements(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)
