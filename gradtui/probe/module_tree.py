"""The modules and parameters of the run's models: their plain description, and weak references to the live objects.

Runs on the training thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

import torch
from torch import nn

from gradtui.probe.graph_facts import Leaf
from gradtui.probe.plain_tensors import plain_tensors
from gradtui.probe.torch_private import compiled_module, is_lazy
from gradtui.protocol.vocabulary import ModelInfo, ModuleInfo, ParameterInfo

T = TypeVar("T")

_MOST_NAMES = 32
"""A parameter has at most so many names: modules shared at every level have twice as many paths at each."""
_MOST_REPEATS = 20_000
"""And at most so many modules are looked at again, all told, for the sake of their other paths."""


class _Contents(NamedTuple):
    """What a module held when it was listed: the ids of its own parameters and of its children, empty slots included."""

    parameters: list[int]
    children: list[int]


@dataclass
class ModuleTree:
    """A depth-first listing of models. Parameters and modules keep their place for as long as the tree lives.

    What `torch.compile` wraps is listed as if it were not wrapped: paths and types are those of the source.
    """

    models: tuple[ModelInfo, ...] = ()
    modules: tuple[ModuleInfo, ...] = ()
    parameters: tuple[ParameterInfo, ...] = ()
    module_refs: list[weakref.ref[nn.Module]] = field(default_factory=list)
    parameter_refs: list[weakref.ref[torch.Tensor]] = field(default_factory=list)
    module_index: dict[int, int] = field(default_factory=dict)
    """id of a live module -> its place; the wrapper around a compiled module has that module's place."""
    parameter_index: dict[int, int] = field(default_factory=dict)
    """id of a parameter -> its place. An id may have passed to another object since: `owns` knows."""
    is_borrowed: bool = False
    """Whether, while listing, some parameters stood in for others (`torch.func.functional_call`)."""
    wrapper_refs: list[weakref.ref[nn.Module]] = field(default_factory=list)
    """The wrappers around compiled modules."""
    contents: list[_Contents] = field(default_factory=list)
    """Aligned with `modules`."""
    layouts: list[tuple[torch.Size | None, torch.dtype]] = field(default_factory=list)
    """Shape (None while a lazy module has not given it one) and type, aligned with `parameters`."""

    def live_parameters(self) -> Iterator[tuple[int, torch.Tensor]]:
        """(place, tensor) of every parameter that is still alive."""
        return _live(self.parameter_refs)

    def live_modules(self) -> Iterator[tuple[int, nn.Module]]:
        """(place, module) of every module that is still alive."""
        return _live(self.module_refs)

    @cached_property
    def parents(self) -> list[int]:
        """By module: the place of the one around it, -1 if there is none."""
        return [module.parent for module in self.modules]

    @cached_property
    def roots(self) -> list[int]:
        """By module: the place of its root."""
        roots: list[int] = []
        for place, parent in enumerate(self.parents):
            roots.append(place if parent < 0 else roots[parent])
        return roots

    @cached_property
    def leaves(self) -> list[Leaf]:
        """By parameter: what it is to autograd's graph."""
        return [Leaf(place, module) for place, module in enumerate(self.owners)]

    @cached_property
    def owners(self) -> list[int]:
        """By parameter: the place of its module."""
        return [parameter.module for parameter in self.parameters]

    def owns(self, parameter: torch.Tensor) -> int | None:
        """The place of a live parameter, None if it is not of these models."""
        place = self.parameter_index.get(id(parameter))
        return place if place is not None and self.parameter_refs[place]() is parameter else None

    def is_gone(self) -> bool:
        """Whether none of the models is alive any more; what runs now is of others, which are not listed yet."""
        return bool(self.models) and all(self.module_refs[model.root]() is None for model in self.models)

    def is_current(self) -> bool:
        """Whether the live modules still hold exactly the parameters and children listed here, in the sizes listed."""
        # While what was listed is alive, no other object can have its id.
        if any(reference() is None for reference in self.wrapper_refs):
            return False
        for reference, (shape, dtype) in zip(self.parameter_refs, self.layouts):
            tensor = reference()
            if tensor is None or tensor.dtype != dtype:
                return False
            if (tensor.shape if type(tensor) is nn.Parameter else _shape(tensor)) != shape:
                return False
        for module_reference, listed in zip(self.module_refs, self.contents):
            module = module_reference()
            if module is None:
                return False
            own, children = module._parameters.values(), module._modules.values()  # noqa: SLF001 - as `_contents`
            if [*map(id, own)] != listed.parameters or [*map(id, children)] != listed.children:
                # A stand-in for the time of one call: what it stands in for comes back.
                return any(not isinstance(held, nn.Parameter) for held in own if held is not None)
        return True

    def is_same(self, other: ModuleTree) -> bool:
        """Whether the other tree lists the same live objects in the same words.

        Equal ids do not tell: Python gives the id of a freed object to the next one.
        """
        return (
            _identical(self.module_refs, other.module_refs)
            and _identical(self.parameter_refs, other.parameter_refs)
            and self.module_index == other.module_index
            and self.parameters == other.parameters
            and self.modules == other.modules
            and self.models == other.models
        )


def build(models: Sequence[tuple[str, nn.Module]]) -> ModuleTree:
    """List `models`, given as (name, root). With several models every path begins with its model's name.

    A module or parameter that is reachable by several paths is listed once, at the first of them.
    """
    return _Builder(prefixed=len(models) > 1).build(models)


class _Open(NamedTuple):
    """A module whose children are being listed."""

    place: int
    path: str
    children: Iterator[tuple[str, nn.Module]]


class _Builder:
    """Lists without recursion, so that no depth of nesting meets Python's limit."""

    def __init__(self, *, prefixed: bool) -> None:
        self._prefixed = prefixed
        self._tree = ModuleTree()
        self._modules: list[ModuleInfo] = []
        self._parameters: list[ParameterInfo] = []
        self._names: list[dict[str, None]] = []
        self._wrappers: list[tuple[nn.Module, nn.Module]] = []
        """(wrapper, what it wraps) of compiled modules."""
        self._repeats = 0

    def build(self, models: Sequence[tuple[str, nn.Module]]) -> ModuleTree:
        found = []
        for name, given in models:
            root = self._unwrapped(given)
            if id(root) not in self._tree.module_index:
                found.append(ModelInfo(name, type(root).__name__, len(self._modules)))
                self._add_model(root, name)
        tree = self._tree
        for wrapper, wrapped in self._wrappers:
            tree.module_index[id(wrapper)] = tree.module_index[id(wrapped)]
            tree.wrapper_refs.append(weakref.ref(wrapper))
        tree.models, tree.modules = tuple(found), tuple(self._modules)
        tree.parameters = tuple(replace(info, names=tuple(names)) for info, names in zip(self._parameters, self._names))
        return tree

    def _unwrapped(self, module: nn.Module) -> nn.Module:
        while (wrapped := compiled_module(module)) is not None:
            self._wrappers.append((module, wrapped))
            module = wrapped
        return module

    def _children(self, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
        for name, child in module._modules.items():  # noqa: SLF001
            if child is not None:
                yield name, self._unwrapped(child)

    def _add_model(self, root: nn.Module, name: str) -> None:
        waiting = [self._enter(root, name if self._prefixed else "", name, -1)]
        while waiting:
            parent = waiting[-1]
            for child_name, child in parent.children:
                path = _join(parent.path, child_name)
                if id(child) not in self._tree.module_index:
                    waiting.append(self._enter(child, path, child_name, parent.place))
                    break
                self._name_again(child, path)
            else:
                self._leave(waiting.pop().place)

    def _enter(self, module: nn.Module, path: str, name: str, parent: int) -> _Open:
        place, first = len(self._modules), len(self._parameters)
        self._tree.module_index[id(module)] = place
        self._tree.module_refs.append(weakref.ref(module))
        self._tree.contents.append(_contents(module))
        for own_name, parameter in module._parameters.items():  # noqa: SLF001 - keeps order, adds nothing
            if parameter is not None:
                self._add_parameter(parameter, _join(path, own_name), place)
        depth = self._modules[parent].depth + 1 if parent >= 0 else 0
        own = len(self._parameters) - first
        # The last two are known only when the children have been listed.
        self._modules.append(ModuleInfo(path, name, type(module).__name__, depth, parent, first, own, -1, -1))
        return _Open(place, path, self._children(module))

    def _leave(self, place: int) -> None:
        info = self._modules[place]
        self._modules[place] = replace(
            info,
            subtree_parameters=len(self._parameters) - info.first_parameter,
            subtree_modules=len(self._modules) - place,
        )

    def _add_parameter(self, parameter: torch.Tensor, path: str, module: int) -> None:
        known = self._tree.parameter_index.get(id(parameter))
        if known is not None:
            self._add_name(known, path)
            return
        shape = _shape(parameter)
        self._tree.parameter_index[id(parameter)] = len(self._parameters)
        self._tree.parameter_refs.append(weakref.ref(parameter))
        self._tree.layouts.append((shape, parameter.dtype))
        self._tree.is_borrowed |= not isinstance(parameter, nn.Parameter)
        # Nothing is known of the size while a lazy module has not given it one.
        count, size = (parameter.numel(), parameter.nbytes) if shape is not None else (0, 0)
        dtype = str(parameter.dtype).removeprefix("torch.")
        local = _local_count(parameter) if shape is not None else None
        self._parameters.append(ParameterInfo(path, (), tuple(shape or ()), dtype, count, size, module, local))
        self._names.append({path: None})

    def _add_name(self, parameter: int, path: str) -> None:
        if len(self._names[parameter]) < _MOST_NAMES:
            self._names[parameter][path] = None

    def _name_again(self, module: nn.Module, path: str) -> None:
        """Add the names that the parameters of a listed module have by another path to it."""
        waiting = [(module, path, frozenset[int]())]
        while waiting and self._repeats < _MOST_REPEATS:
            self._repeats += 1
            current, here, above = waiting.pop()
            if not self._is_listed(current) or id(current) in above:
                continue  # It is a part of itself.
            for name, parameter in current._parameters.items():  # noqa: SLF001
                known = self._tree.parameter_index.get(id(parameter))
                if known is not None:
                    self._add_name(known, _join(here, name))
            within = above | {id(current)}
            waiting += [(child, _join(here, name), within) for name, child in reversed([*self._children(current)])]

    def _is_listed(self, module: nn.Module) -> bool:
        """Whether the listing of this module is complete."""
        place = self._tree.module_index.get(id(module))
        return place is not None and self._modules[place].subtree_modules > 0


def _live(references: Sequence[weakref.ref[T]]) -> Iterator[tuple[int, T]]:
    """(place, object) of what is still alive. As long as all is, without an object made for each: examined steps ask often."""
    found = [each for reference in references if (each := reference()) is not None]
    if len(found) == len(references):
        return enumerate(found)
    return ((place, each) for place, reference in enumerate(references) if (each := reference()) is not None)


def _contents(module: nn.Module) -> _Contents:
    own, children = module._parameters, module._modules  # noqa: SLF001 - `named_children` leaves out what is shared
    return _Contents([id(parameter) for parameter in own.values()], [id(child) for child in children.values()])


def _shape(parameter: torch.Tensor) -> torch.Size | None:
    return None if is_lazy(parameter) else parameter.shape


def _local_count(parameter: torch.Tensor) -> int | None:
    # Its parts are looked up: `to_local` would be an operation, which a mode of the script's could see.
    return sum(part.numel() for part in plain_tensors(parameter)) if hasattr(type(parameter), "to_local") else None


def _identical(ours: Sequence[weakref.ref[T]], theirs: Sequence[weakref.ref[T]]) -> bool:
    return len(ours) == len(theirs) and all(one() is other() is not None for one, other in zip(ours, theirs))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
