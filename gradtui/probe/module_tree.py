"""The modules and parameters of the run's models: their plain description, and weak references to the live objects."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from gradtui.probe.torch_private import is_lazy
from gradtui.protocol.vocabulary import ModelInfo, ModuleInfo, ParameterInfo


@dataclass
class ModuleTree:
    """A depth-first listing of models. Parameters and modules keep their place for as long as the tree lives."""

    models: tuple[ModelInfo, ...] = ()
    modules: tuple[ModuleInfo, ...] = ()
    parameters: tuple[ParameterInfo, ...] = ()
    module_refs: list[weakref.ref[nn.Module]] = field(default_factory=list)
    parameter_refs: list[weakref.ref[torch.Tensor]] = field(default_factory=list)
    module_index: dict[int, int] = field(default_factory=dict)
    """id of a live module -> its place."""
    parameter_index: dict[int, int] = field(default_factory=dict)
    """id of a live parameter -> its place. Only to be asked about objects known to be alive."""

    def live_parameters(self) -> Iterator[tuple[int, torch.Tensor]]:
        """(place, tensor) of every parameter that is still alive."""
        for index, reference in enumerate(self.parameter_refs):
            tensor = reference()
            if tensor is not None:
                yield index, tensor

    def live_modules(self) -> Iterator[tuple[int, nn.Module]]:
        """(place, module) of every module that is still alive."""
        for index, reference in enumerate(self.module_refs):
            module = reference()
            if module is not None:
                yield index, module

    def owns(self, parameter: torch.Tensor) -> int | None:
        """The place of a live parameter, None if it is not of these models."""
        return self.parameter_index.get(id(parameter))

    def is_current(self) -> bool:
        """Whether the live modules still hold exactly the parameters and children listed here."""
        for index, reference in enumerate(self.module_refs):
            module = reference()
            if module is None:
                return False
            first = self.modules[index].first_parameter
            for parameter in module._parameters.values():  # noqa: SLF001 - `parameters()` is 20 times slower
                if parameter is not None and self.parameter_index.get(id(parameter)) is None:
                    return False
            own = self.modules[index].own_parameters
            for place in range(first, first + own):
                if self.parameter_refs[place]() is None:
                    return False
            for child in module._modules.values():  # noqa: SLF001
                if child is not None and id(child) not in self.module_index:
                    return False
        return True


def build(models: Sequence[tuple[str, nn.Module]]) -> ModuleTree:
    """List `models`, given as (name, root). With several models every path begins with its model's name.

    A module or parameter that is reachable by several paths is listed once, at the first of them.
    """
    return _Builder(prefixed=len(models) > 1).build(models)


class _Builder:
    def __init__(self, *, prefixed: bool) -> None:
        self._prefixed = prefixed
        self._tree = ModuleTree()
        self._modules: list[ModuleInfo] = []
        self._parameters: list[ParameterInfo] = []
        self._names: list[list[str]] = []

    def build(self, models: Sequence[tuple[str, nn.Module]]) -> ModuleTree:
        found = []
        for name, root in models:
            if id(root) in self._tree.module_index:
                continue
            place = self._add_module(root, name if self._prefixed else "", name, depth=0, parent=-1)
            found.append(ModelInfo(name, type(root).__name__, place))
        tree = self._tree
        tree.models, tree.modules = tuple(found), tuple(self._modules)
        tree.parameters = tuple(
            ParameterInfo(info.path, tuple(names), info.shape, info.dtype, info.count, info.bytes, info.module)
            for info, names in zip(self._parameters, self._names)
        )
        return tree

    def _add_module(self, module: nn.Module, path: str, name: str, depth: int, parent: int) -> int:
        place = len(self._modules)
        first = len(self._parameters)
        self._tree.module_index[id(module)] = place
        self._tree.module_refs.append(weakref.ref(module))
        info = ModuleInfo(path, name, type(module).__name__, depth, parent, first, 0, 0, 1)
        self._modules.append(info)
        for own_name, parameter in module._parameters.items():  # noqa: SLF001 - keeps None and order, adds nothing
            if parameter is not None:
                self._add_parameter(parameter, _join(path, own_name), place)
        own = len(self._parameters) - first
        for child_name, child in module._modules.items():  # noqa: SLF001
            if child is None:
                continue
            if id(child) in self._tree.module_index:
                self._name_again(child, _join(path, child_name))
            else:
                self._add_module(child, _join(path, child_name), child_name, depth + 1, place)
        self._modules[place] = ModuleInfo(
            path,
            name,
            info.type_name,
            depth,
            parent,
            first,
            own,
            len(self._parameters) - first,
            len(self._modules) - place,
        )
        return place

    def _add_parameter(self, parameter: torch.Tensor, path: str, module: int) -> None:
        known = self._tree.parameter_index.get(id(parameter))
        if known is not None:
            self._names[known].append(path)
            return
        self._tree.parameter_index[id(parameter)] = len(self._parameters)
        self._tree.parameter_refs.append(weakref.ref(parameter))
        shape, count = _size(parameter)
        size = count * parameter.element_size()
        dtype = str(parameter.dtype).removeprefix("torch.")
        self._parameters.append(ParameterInfo(path, (), shape, dtype, count, size, module))
        self._names.append([path])

    def _name_again(self, module: nn.Module, path: str) -> None:
        for name, parameter in module.named_parameters(remove_duplicate=True):
            known = self._tree.parameter_index.get(id(parameter))
            if known is not None:
                self._names[known].append(_join(path, name))


def _size(parameter: torch.Tensor) -> tuple[tuple[int, ...], int]:
    if is_lazy(parameter):
        return (), 0
    return tuple(parameter.shape), parameter.numel()


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
