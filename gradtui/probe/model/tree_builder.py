"""List the modules and parameters of models in a `ModuleTree`. Runs on the training thread, at its first step with them.

A parameter is described once, and again for each further name: a model may have 100,000 parameters.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import nn

from gradtui.probe.model.module_tree import Contents, ModuleTree, memory_of, shape_of
from gradtui.probe.torch_private.private_names import compiled_in_place, compiled_module, is_stand_in
from gradtui.probe.torch_private.unwrap import plain_tensors
from gradtui.protocol.vocabulary import BufferInfo, ModelInfo, ModuleInfo, ParameterInfo

_MAX_NAMES = 32
"""The most names of a parameter: modules shared at every level double the number of paths at each."""
_MAX_REPEATS = 20_000
"""The most modules, in total, that are visited again for their other paths."""


def build(models: Sequence[tuple[str, nn.Module]]) -> ModuleTree:
    """List `models`, given as (name, root). With several models every path begins with its model's name.

    A module or parameter that is reachable by several paths is listed once, at the first of them.
    """
    return _Builder(prefixed=len(models) > 1).build(models)


class _Open(NamedTuple):
    """A module whose children are being listed; `info` has the fields of its `ModuleInfo` up to its own parameters."""

    module: int
    children: Iterator[tuple[str, nn.Module]]
    info: tuple[str, str, str, int, int, int, int]


class _Builder:
    """Lists modules without recursion, so that no depth of nesting reaches Python's recursion limit."""

    def __init__(self, *, prefixed: bool) -> None:
        self._prefixed = prefixed
        self._tree = ModuleTree()
        self._modules: list[ModuleInfo | None] = []
        """None as long as the children of the module are being listed."""
        self._parameters: list[ParameterInfo] = []
        self._buffers: dict[int, BufferInfo] = {}
        """Keyed by id()."""
        self._wrappers: list[tuple[nn.Module, nn.Module]] = []
        """(wrapper, wrapped module) of compiled modules."""
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
            reference = weakref.ref(wrapper)
            tree.module_index[id(wrapper)] = tree.module_index[id(wrapped)][0], reference
            tree.wrapper_refs.append(reference)
        wrapped_indices = {tree.module_index[id(wrapped)][0] for _, wrapped in self._wrappers}
        in_place = {index for index, module in tree.live_modules() if compiled_in_place(module)}
        tree.compiled = frozenset(wrapped_indices | in_place)
        tree.models = tuple(found)
        tree.modules = tuple(info for info in self._modules if info is not None)
        rows = self._parameters
        memories = [(index, memory_of(tensor)) for index, tensor in tree.live_parameters()]
        tree.same_storage = _alike(memories)
        tree.one_storage = _alike((index, memory and memory[0]) for index, memory in memories)
        for indices in tree.same_storage:
            for index in indices:
                others = tuple(rows[other].path for other in indices if other != index)
                rows[index] = replace(rows[index], same_storage=others)
        tree.parameters = tuple(rows)
        tree.buffers = tuple(self._buffers.values())
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
        waiting = [self._enter(root, name if self._prefixed else "", name, -1, 0)]
        while waiting:
            parent = waiting[-1]
            for child_name, child in parent.children:
                path = _join(parent.info[0], child_name)
                if id(child) in self._tree.module_index:
                    self._share(child)
                    self._name_again(child, path)
                    continue
                entered = self._enter(child, path, child_name, parent.module, len(waiting))
                if child._modules:  # noqa: SLF001
                    waiting.append(entered)
                    break
                self._leave(entered)
            else:
                self._leave(waiting.pop())

    def _enter(self, module: nn.Module, path: str, name: str, parent: int, depth: int) -> _Open:
        index, first = len(self._modules), len(self._parameters)
        reference = weakref.ref(module)
        self._tree.module_index[id(module)] = index, reference
        self._tree.module_refs.append(reference)
        own, children = module._parameters, module._modules  # noqa: SLF001 - `named_children` leaves out what is shared
        contents = Contents([*map(id, own.values())], [*map(id, children.values())], [*module._buffers.keys()])  # noqa: SLF001
        self._tree.contents.append(contents)
        for own_name, parameter in own.items():
            if parameter is not None:
                self._add_parameter(parameter, _join(path, own_name), index)
        for own_name, buffer in module._buffers.items():  # noqa: SLF001
            if buffer is not None and id(buffer) not in self._buffers:
                persistent = own_name not in module._non_persistent_buffers_set  # noqa: SLF001
                self._buffers[id(buffer)] = _buffer_info(buffer, _join(path, own_name), index, persistent=persistent)
        self._modules.append(None)
        count = len(self._parameters) - first
        return _Open(index, self._children(module), (path, name, type(module).__name__, depth, parent, first, count))

    def _leave(self, opened: _Open) -> None:
        index, _, info = opened
        self._modules[index] = ModuleInfo(*info, len(self._parameters) - info[5], len(self._modules) - index)

    def _add_parameter(self, parameter: torch.Tensor, path: str, module: int) -> None:
        tree = self._tree
        known = tree.parameter_index.get(id(parameter))
        if known is not None:
            self._add_name(known, path)
            return
        # Tested first: `isinstance` of a parameter runs Python code of torch, and most are exactly of this type.
        is_plain = type(parameter) is nn.Parameter
        shape, dtype = parameter.shape if is_plain else shape_of(parameter), parameter.dtype
        tree.parameter_index[id(parameter)] = len(self._parameters)
        tree.parameter_refs.append(weakref.ref(parameter))
        tree.layouts.append((shape, dtype))
        tree.is_borrowed |= not is_plain and is_stand_in(parameter, tree.module_refs[module]())
        # The size is unknown while a lazy module has not set it.
        count, size = (parameter.numel(), parameter.nbytes) if shape is not None else (0, 0)
        local = None
        if not is_plain and shape is not None and hasattr(type(parameter), "to_local"):
            # Read the parts: `to_local` would be an operation, which a mode of the script could observe.
            local = sum(part.numel() for part in plain_tensors(parameter))
        name = str(dtype).removeprefix("torch.")
        info = ParameterInfo(path, (path,), tuple(shape or ()), name, count, size, module, local)
        self._parameters.append(replace(info, device=parameter.device.index) if parameter.is_cuda else info)

    def _add_name(self, parameter: int, path: str) -> None:
        info = self._parameters[parameter]
        if len(info.names) < _MAX_NAMES and path not in info.names:
            self._parameters[parameter] = replace(info, names=(*info.names, path))

    def _share(self, module: nn.Module) -> None:
        """Note that a listed module is a child of another one too, if neither it nor a part of it has parameters."""
        index = self._tree.index_of(module)
        info = self._modules[index] if index >= 0 else None
        if info is not None and not info.subtree_parameters:
            self._tree.shared.update(range(index, index + info.subtree_modules))

    def _name_again(self, module: nn.Module, path: str) -> None:
        """Add the names of the parameters of a listed module by another path to it."""
        waiting = [(module, path, frozenset[int]())]
        while waiting and self._repeats < _MAX_REPEATS:
            self._repeats += 1
            current, here, above = waiting.pop()
            index = self._tree.index_of(current)
            if index < 0 or self._modules[index] is None or id(current) in above:
                continue  # The module is a part of itself.
            for name, parameter in current._parameters.items():  # noqa: SLF001
                known = self._tree.parameter_index.get(id(parameter))
                if known is not None:
                    self._add_name(known, _join(here, name))
            within = above | {id(current)}
            waiting += [(child, _join(here, name), within) for name, child in reversed([*self._children(current)])]


def _alike(places: Iterable[tuple[int, Hashable]]) -> list[tuple[int, ...]]:
    """Return the groups of parameters in one place: `load_state_dict(assign=True)`, for example, makes them."""
    found: defaultdict[Hashable, list[int]] = defaultdict(list)
    for index, place in places:
        if place is not None:
            found[place].append(index)
    return [tuple(indices) for indices in found.values() if len(indices) > 1]


def _buffer_info(buffer: torch.Tensor, path: str, module: int, *, persistent: bool) -> BufferInfo:
    shape, dtype = shape_of(buffer), str(buffer.dtype).removeprefix("torch.")
    count, size = (buffer.numel(), buffer.nbytes) if shape is not None else (0, 0)
    return BufferInfo(path, tuple(shape or ()), dtype, count, size, module, persistent)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
