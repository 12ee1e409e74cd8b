"""Find what belongs to a run and is in no listed model and no known optimizer, in the variables of the script. Training thread.

- Copies of a model that the script holds and never calls, such as the average of its weights (EMA).
- Dictionaries and lists that have a tensor of the shape of each trained parameter of a model: an average of the weights, or the
  best ones so far.
- Optimizers of torch that no hook has seen.
- Objects that step and have tensors, and are no optimizers of torch: only they know what their state is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from gradtui.dataclass import dataclass
from gradtui.probe.model import Held, ModuleTree, held_objects, optimizer_membership
from gradtui.probe.torch_private.module_walk import buffers_of, modules_of, parameters_of
from gradtui.probe.torch_private.private_names import is_lazy
from gradtui.probe.torch_private.unwrap import PLAIN

Container = dict[Any, Any] | list[Any]
_METHODS = ("step", "zero_grad")
"""What a class that optimizes has."""
_DEPTH = 3
"""Containers within each other in which the tensors of such an object are looked for."""


@dataclass
class HeldState:
    """What was found. Names are those by which the script reaches it."""

    modules: list[tuple[str, nn.Module]] = field(default_factory=list)
    """Copies of models. `torch.optim.swa_utils.AveragedModel` is one, and a deep copy of a model another."""
    containers: list[tuple[str, Container]] = field(default_factory=list)
    """No two have the same name."""
    optimizers: list[Optimizer] = field(default_factory=list)
    unknown: tuple[str, str] | None = None
    """The name and the class of an object whose state only it knows."""


def held_state(tree: ModuleTree, optimizers: Sequence[Optimizer]) -> HeldState:
    """Search the variables of the script. `optimizers` are those that are known."""
    roots = [root for model in tree.models if (root := tree.module_refs[model.root]()) is not None]
    search = _Search(roots, optimizers)
    for root in roots:
        for name, value in vars(root).items():
            search.visit(Held(name, True, value))
    for held in held_objects(tree, of_modules=False):
        search.visit(held)
    return search.found


class _Search:
    def __init__(self, roots: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> None:
        self.found = HeldState()
        self._models = [shapes for root in roots if (shapes := _shapes(parameters_of(root)))]
        trained = ([each for each in parameters_of(root) if each.requires_grad] for root in roots)
        self._trained = [shapes for parameters in trained if (shapes := _shapes(parameters))]
        self._seen = {id(module) for root in roots for module in modules_of(root)}
        own = [each for root in roots for each in chain(parameters_of(root), buffers_of(root))]
        own += chain.from_iterable(map(optimizer_membership.parameters, optimizers))
        own += [each.grad for each in own if each.is_leaf and each.grad is not None]
        self._own = set(map(storage_of, own)) - {None}
        self._stepped = {id(each) for optimizer in optimizers for each in optimizer_membership.parameters(optimizer)}
        self._optimizes: dict[type, bool] = {}

    def visit(self, held: Held) -> None:
        """Keep it if it belongs to the run. The type is asked: a proxy of the script's may answer by running code."""
        kind = type(held.value)
        if issubclass(kind, (dict, list)):
            self._container(held)
        elif issubclass(kind, nn.Module):
            self._module(held)
        elif issubclass(kind, Optimizer):
            if self._stepped.isdisjoint(map(id, optimizer_membership.parameters(held.value))):
                # Frameworks wrap a known one in another, which has its parameters.
                self._stepped |= set(map(id, optimizer_membership.parameters(held.value)))
                self.found.optimizers.append(held.value)
        elif self._is_optimizing(kind) and self.found.unknown is None:
            self._unknown(held, kind)

    def _module(self, held: Held) -> None:
        if held.of_module or id(held.value) in self._seen:
            return
        # What is in a module that was found belongs to it. A module around a listed one has that one's tensors.
        inside = {id(module) for module in modules_of(held.value)}
        is_apart = self._seen.isdisjoint(inside)
        self._seen |= inside
        if is_apart and _shapes(parameters_of(held.value)) in self._models:
            self.found.modules.append((held.name, held.value))

    def _container(self, held: Held) -> None:
        if len(held.value) < min((each.total() for each in self._trained), default=1):
            return
        tensors = [each for _, each in items_of(held.value)]
        shapes = _shapes(tensors)
        if not any(wanted <= shapes for wanted in self._trained) or self._has_own(tensors):
            return
        taken = sum(name == held.name for name, _ in self.found.containers)
        self.found.containers.append((f"{held.name} {taken + 1}" if taken else held.name, held.value))

    def _has_own(self, tensors: Iterable[torch.Tensor]) -> bool:
        """Return whether some are of the run itself, as those that `state_dict()` returns."""
        return not self._own.isdisjoint(map(storage_of, tensors))

    def _is_optimizing(self, kind: type) -> bool:
        found = self._optimizes.get(kind)
        if found is None:
            found = self._optimizes[kind] = all(callable(getattr(kind, name, None)) for name in _METHODS)
        return found

    def _unknown(self, held: Held, kind: type) -> None:
        values = [each for value in getattr(held.value, "__dict__", {}).values() for each in _within(value, _DEPTH)]
        # The state of an object that steps optimizers is in these.
        if any(issubclass(type(each), Optimizer) for each in values):
            return
        if not {storage_of(each) for each in values} <= self._own | {None}:
            self.found.unknown = held.name, kind.__name__


def items_of(container: Container) -> Iterator[tuple[Any, torch.Tensor]]:
    """Yield the tensors of a container, each with its index or with its key if that is a text or a number."""
    pairs = dict.items(container) if isinstance(container, dict) else enumerate(list.__iter__(container))
    for key, value in [*pairs]:
        # A copy must not keep other keys alive, such as parameters.
        if issubclass(type(value), torch.Tensor) and type(key) in (str, int):
            yield key, value


def storage_of(tensor: Any) -> int | None:
    """Return where the memory of a tensor begins; None where it has none of its own, and for anything but a tensor."""
    if type(tensor) not in PLAIN or tensor.layout is not torch.strided or tensor.is_meta or is_lazy(tensor):
        return None
    return tensor.untyped_storage().data_ptr() or None


def _shapes(tensors: Iterable[torch.Tensor]) -> Counter[torch.Size]:
    return Counter(each.shape for each in tensors if not is_lazy(each))


def _within(value: Any, depth: int) -> Iterator[Any]:
    """Yield a value, and what is in it if it is a container."""
    yield value
    if depth and issubclass(type(value), (dict, list, tuple)):
        for each in [*(dict.values(value) if isinstance(value, dict) else value)]:
            yield from _within(each, depth - 1)
