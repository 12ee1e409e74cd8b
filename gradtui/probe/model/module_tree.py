"""List the modules and parameters of the run's models: plain descriptions, and weak references to the live objects.

Runs on the training thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from functools import cached_property
from typing import NamedTuple, TypeVar

import torch
from torch import nn

from gradtui.dataclass import dataclass
from gradtui.probe.torch_private.private_names import compiled_in_place, is_lazy, storage_key
from gradtui.protocol.vocabulary import BufferInfo, ModelInfo, ModuleInfo, ParameterInfo

T = TypeVar("T")
Lineage = tuple[tuple[str, "weakref.ref[nn.Module]"], ...]
"""(class name, module) of the module that owns a parameter and of every module around it, the root last."""


class Leaf(NamedTuple):
    """A trainable parameter: its index, and that of the module that owns it."""

    parameter: int
    module: int


class Contents(NamedTuple):
    """The ids of a module's own parameters and children when it was listed, and its buffers' names.

    Empty slots of parameters and children are included. Ids of buffers are not, since scripts replace buffers in every step.
    """

    parameters: list[int]
    children: list[int]
    buffers: list[str]


@dataclass
class ModuleTree:
    """A depth-first listing of models. Parameters and modules keep their index for as long as the tree lives.

    A module wrapped by `torch.compile` is listed as if it were not wrapped: with the paths and types of the source.
    """

    models: tuple[ModelInfo, ...] = ()
    modules: tuple[ModuleInfo, ...] = ()
    parameters: tuple[ParameterInfo, ...] = ()
    buffers: tuple[BufferInfo, ...] = ()
    """The buffers when they were listed: scripts replace them, and register more, at any time."""
    module_refs: list[weakref.ref[nn.Module]] = field(default_factory=list)
    parameter_refs: list[weakref.ref[torch.Tensor]] = field(default_factory=list)
    module_index: dict[int, tuple[int, weakref.ref[nn.Module]]] = field(default_factory=dict)
    """id of a module -> its index, and the module; the wrapper around a compiled module has that module's index. Another
    object may have the id by now: `index_of` checks that."""
    parameter_index: dict[int, int] = field(default_factory=dict)
    """id of a parameter -> its index. Another object may have the id by now: `owns` checks that."""
    is_borrowed: bool = False
    """Whether other tensors replaced some parameters during the listing (`torch.func.functional_call`)."""
    wrapper_refs: list[weakref.ref[nn.Module]] = field(default_factory=list)
    """The wrappers around compiled modules."""
    compiled: frozenset[int] = frozenset()
    """Indexes of the modules whose calls run compiled code: those that `torch.compile` has wrapped, and those on which
    `module.compile()` was called."""
    contents: list[Contents] = field(default_factory=list)
    """Aligned with `modules`."""
    layouts: list[tuple[torch.Size | None, torch.dtype]] = field(default_factory=list)
    """Shape (None while a lazy module has not set it) and dtype, aligned with `parameters`."""

    shared: set[int] = field(default_factory=set)
    """Indexes of modules without parameters that several modules have as a child, such as one activation function for all
    blocks. What they compute belongs to their callers."""
    listing: int = 0
    """The number of this listing in the run, from 1."""
    same_storage: list[tuple[int, ...]] = field(default_factory=list)
    """Indexes of parameters that are different objects over the same memory."""
    one_storage: list[tuple[int, ...]] = field(default_factory=list)
    """Indexes of parameters that share a storage, whichever parts of it they have."""

    def live_parameters(self) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield (index, tensor) of every parameter that is still alive."""
        return _live(self.parameter_refs)

    def live_modules(self) -> Iterator[tuple[int, nn.Module]]:
        """Yield (index, module) of every module that is still alive."""
        return _live(self.module_refs)

    @cached_property
    def parents(self) -> list[int]:
        """For each module the index of its parent, -1 if there is none."""
        return [module.parent for module in self.modules]

    def around(self, module: int) -> list[int]:
        """Return the index of a module and those of its ancestors, innermost first; nothing for -1."""
        found, parents = [], self.parents
        while module >= 0:
            found.append(module)
            module = parents[module]
        return found

    def with_ancestors(self, modules: Iterable[int]) -> set[int]:
        """Return the indexes of these modules and of all their ancestors."""
        found: set[int] = set()
        parents = self.parents
        for module in modules:
            while module >= 0 and module not in found:
                found.add(module)
                module = parents[module]
        return found

    def lineage(self, module: int) -> Lineage:
        """Return the lineage of the parameters of a module."""
        return tuple([(self.modules[each].type_name, self.module_refs[each]) for each in self.around(module)])

    @cached_property
    def roots(self) -> list[int]:
        """For each module the index of its root."""
        roots: list[int] = []
        for index, parent in enumerate(self.parents):
            roots.append(index if parent < 0 else roots[parent])
        return roots

    @cached_property
    def leaves(self) -> list[Leaf]:
        """For each parameter its index with that of its module, as the walk over autograd's graph uses them."""
        return [Leaf(index, module) for index, module in enumerate(self.owners)]

    @cached_property
    def owners(self) -> list[int]:
        """For each parameter the index of its module."""
        return [parameter.module for parameter in self.parameters]

    def owns(self, parameter: object) -> int | None:
        """Return the index of a live parameter, None if it is not of these models."""
        index = self.parameter_index.get(id(parameter))
        return index if index is not None and self.parameter_refs[index]() is parameter else None

    def indices(self, parameters: Iterable[object]) -> list[int | None]:
        """Return the index of each of these parameters, as `owns` does, without a call for each."""
        known, references = self.parameter_index, self.parameter_refs
        return [
            index if (index := known.get(id(each))) is not None and references[index]() is each else None
            for each in parameters
        ]

    def listed(self, parameters: Iterable[object]) -> tuple[int, ...]:
        """Return the indexes of those of these parameters that are listed."""
        return tuple([index for index in self.indices(parameters) if index is not None])

    def index_of(self, module: object) -> int:
        """Return the index of a live module, -1 if it is not of these models."""
        known = self.module_index.get(id(module))
        return known[0] if known is not None and known[1]() is module else -1

    def class_among(self, names: Sequence[str]) -> str | None:
        """Return the first of these names that is the class or a base of a live module; None if there is none."""
        found = {kind.__name__ for _, module in self.live_modules() for kind in type(module).__mro__}
        return next((name for name in names if name in found), None)

    def is_gone(self) -> bool:
        """Return whether all listed models are freed. A model that runs now is then not listed yet."""
        return bool(self.models) and all(self.module_refs[model.root]() is None for model in self.models)

    def is_whole_model(self, module: object) -> bool:
        """Return whether a module has all parameters of its model. True for a module that is not listed."""
        index = self.index_of(module)
        return index < 0 or self.modules[index].subtree_parameters == self.modules[self.roots[index]].subtree_parameters

    def live_ids(self) -> set[int]:
        """Return the ids of the listed modules that are alive, and of the wrappers around compiled ones."""
        references = (*self.module_refs, *self.wrapper_refs)
        return {id(module) for reference in references if (module := reference()) is not None}

    def is_current(self, *, freed: bool = False) -> bool:
        """Return whether the live modules still hold exactly the parameters and children listed here, in the listed sizes.

        With `freed`, objects that no longer exist may stay listed.
        """
        if not freed and any(reference() is None for reference in self.wrapper_refs):
            return False
        if not self._has_sizes_as_listed(freed=freed):
            return False
        for index, (module_reference, listed) in enumerate(zip(self.module_refs, self.contents)):
            module = module_reference()
            if module is None and freed:
                continue
            if module is None:
                return False
            own, children = module._parameters.values(), module._modules.values()  # noqa: SLF001 - as in `tree_builder`
            # While everything listed is alive, no other object has the id of a listed one.
            if freed and not self._are_listed(own, children):
                return False
            if [*map(id, own)] != listed.parameters or [*map(id, children)] != listed.children:
                # A tensor that replaces the parameter for one call: the parameter returns afterwards.
                return any(not isinstance(held, nn.Parameter) for held in own if held is not None)
            if [*module._buffers.keys()] != listed.buffers:  # noqa: SLF001
                return False
            if compiled_in_place(module) and index not in self.compiled:
                return False
        groups = ([self.parameter_refs[index]() for index in indices] for indices in self.same_storage)
        return all(len({memory_of(tensor) for tensor in group if tensor is not None}) <= 1 for group in groups)

    def _are_listed(self, parameters: Iterable[object], modules: Iterable[object]) -> bool:
        owned = all(self.owns(each) is not None for each in parameters if each is not None)
        return owned and all(self.index_of(each) >= 0 for each in modules if each is not None)

    def _has_sizes_as_listed(self, *, freed: bool) -> bool:
        for reference, (shape, dtype) in zip(self.parameter_refs, self.layouts):
            tensor = reference()
            if tensor is None and freed:
                continue
            if tensor is None or tensor.dtype != dtype:
                return False
            if (tensor.shape if type(tensor) is nn.Parameter else shape_of(tensor)) != shape:
                return False
        return True

    def _wrapped_indices(self) -> list[int]:
        return [self.index_of(wrapper) for reference in self.wrapper_refs if (wrapper := reference()) is not None]

    def is_same(self, other: ModuleTree) -> bool:
        """Return whether the other tree lists the same live objects with equal descriptions.

        Comparing ids is not enough: Python may give the id of a freed object to a new one.
        """
        return (
            _identical(self.module_refs, other.module_refs)
            and _identical(self.parameter_refs, other.parameter_refs)
            and _identical(self.wrapper_refs, other.wrapper_refs)
            and self.compiled == other.compiled
            and self._wrapped_indices() == other._wrapped_indices()
            and self.parameters == other.parameters
            and self.buffers == other.buffers
            and self.modules == other.modules
            and self.models == other.models
        )


def is_same_model(before: Lineage, now: Lineage) -> bool:
    """Compare the model of a parameter then and now: a script may build another model from the parts of one.

    Return whether it is the same, was wrapped or unwrapped, or has a new wrapper of the same class.
    """
    return _has(now, _model(before)) or _has(before, _model(now)) or _is_wrapped_anew(before, now)


def _is_wrapped_anew(before: Lineage, now: Lineage) -> bool:
    if _model(before) is not None or before[-1][0] != now[-1][0]:
        return False
    return _has(now, next((module for _, reference in reversed(before) if (module := reference()) is not None), None))


def _model(above: Lineage) -> nn.Module | None:
    return above[-1][1]()


def _has(above: Lineage, module: nn.Module | None) -> bool:
    return module is not None and any(reference() is module for _, reference in above)


def shape_of(parameter: torch.Tensor) -> torch.Size | None:
    """Return the shape of a parameter, None while a lazy module has not set it."""
    return None if is_lazy(parameter) else parameter.shape


def memory_of(parameter: torch.Tensor) -> tuple[int, int, int] | None:
    """Return the storage of a parameter and its elements in it; None for a tensor without memory of its own."""
    # A subclass (DTensor, a fake tensor, a parameter of a lazy module) may stand for other tensors, or for none.
    if type(parameter) is not nn.Parameter or parameter.layout is not torch.strided or parameter.is_meta:
        return None
    return (storage_key(parameter), int(parameter.storage_offset()), parameter.numel()) if parameter.numel() else None


def _live(references: Sequence[weakref.ref[T]]) -> Iterator[tuple[int, T]]:
    """Return (index, object) of everything still alive.

    If all objects are alive, it makes no new list of pairs, since sampled steps call it often.
    """
    found = [each for reference in references if (each := reference()) is not None]
    if len(found) == len(references):
        return enumerate(found)
    return ((index, each) for index, reference in enumerate(references) if (each := reference()) is not None)


def _identical(ours: Sequence[weakref.ref[T]], theirs: Sequence[weakref.ref[T]]) -> bool:
    return len(ours) == len(theirs) and all(one() is other() is not None for one, other in zip(ours, theirs))
