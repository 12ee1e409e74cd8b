"""Find the models and optimizers of a script that does not import gradtui.

Models are the outermost modules that own a parameter of a live optimizer, and root modules that were called and have
parameters. A model whose parameters all belong to another one (the pair of encoders that a prompt learner wraps) is part of
that one, not a model of its own. Neither a wrapper that is constructed anew for every call nor a graph that dynamo compiled is
a model.

A walk down from the known roots lists the models again, in time linear in their size. A search through all objects of the
process is needed only for modules around a root, and for the owner of a parameter that no known root has.
"""

from __future__ import annotations

import gc
import itertools
import sys
import weakref
from collections.abc import Callable, Container
from typing import NamedTuple

import torch
from torch import nn

from gradtui.probe.model.optimizer_membership import parameters
from gradtui.probe.model.optimizer_registry import OptimizerRegistry
from gradtui.probe.model.running_module import module_classes
from gradtui.probe.runtime import ByIdentity
from gradtui.probe.torch_private.module_walk import modules_of, parameters_of
from gradtui.probe.torch_private.private_names import compiled_module, has_stand_ins, is_compiled_graph

_OFTEN_GONE = 2
"""A root replaced this often around the same parameters is a wrapper: a script may replace its model once."""


class _Own(NamedTuple):
    """The ids of a root's parameters, which are valid only as long as all of the parameters live."""

    ids: frozenset[int]
    references: tuple[weakref.ref[torch.Tensor], ...]

    @classmethod
    def of(cls, root: nn.Module, ids: set[int]) -> _Own:
        references: list[weakref.ref[torch.Tensor]] = []
        for module in modules_of(root):
            own = module._parameters.values()  # noqa: SLF001 - as in `_parameter_ids`
            references += [weakref.ref(each) for each in own if each is not None]
        return cls(frozenset(ids), tuple(references))

    def are_alive(self) -> bool:
        return all(reference() is not None for reference in self.references)


class Discovery:
    """Remembers modules and optimizers weakly, and derives the models from them."""

    def __init__(self) -> None:
        self.dirty = False
        """Whether a module, parameter or optimizer was found or registered since the models were last listed."""
        self.needs_search = False
        """Whether a listing without a search may have missed a module around the known ones."""
        self.searches = 0
        """The number of searches through all objects of the process."""
        self.optimizers = OptimizerRegistry(self._found_optimizer)
        self.register_optimizer = self.optimizers.register
        """Registers an optimizer that was constructed or stepped, and returns its index among all registered ones."""
        self._called: dict[int, tuple[weakref.ref[nn.Module], bool]] = {}
        """id -> module, and whether other tensors replaced its parameters at its first call."""
        self._named: list[tuple[str, weakref.ref[nn.Module]]] = []
        self._listed: list[weakref.ref[nn.Module]] = []
        """The roots of the models that were last listed."""
        self._without_owner: ByIdentity[torch.Tensor, bool] = ByIdentity()
        """The parameters of optimizers for which a search has found no module."""
        self._roots: list[tuple[weakref.ref[nn.Module], type, _Own]] = []
        """The roots found last of which an optimizer owns a parameter, each with its type."""
        self._gone: dict[type, dict[frozenset[int], tuple[int, _Own]]] = {}
        """How often a root of this type was freed while these parameters of it lived on and were still trained."""

    def _found_optimizer(self) -> None:
        self.dirty = True

    def on_root_call(self, module: nn.Module) -> bool:
        """Handle a call of a root module; return whether it has parameters, or tensors that replace them."""
        known = self._called.get(id(module))
        if known is not None and known[0]() is module:
            return True
        # Loss functions are modules too, and some scripts construct a new one every step.
        if not (module._parameters or module._modules):  # noqa: SLF001 - the walk of `parameters()` is 20 times slower
            return False
        if next(parameters_of(module), None) is None:
            return False
        self._called = {key: called for key, called in self._called.items() if called[0]() is not None}
        # torch.func.functional_call: `_has_own_use` checks its own parameters when they are back in place.
        self._called[id(module)] = weakref.ref(module), has_stand_ins(module)
        self.dirty |= not self._is_fleeting(module)
        return True

    def name_model(self, name: str, module: nn.Module) -> None:
        """Register a model that the script itself named to gradtui."""
        self._named.append((name, weakref.ref(module)))
        self.dirty = True

    def models(self, listed: Container[int] = (), *, may_search: bool = True) -> list[tuple[str, nn.Module]]:
        """Return the present models of the run as (name, root).

        `listed` holds the ids of modules that have been part of a model before.

        All objects of the process are searched only where that is needed: for modules around a root that has not been
        listed, and for the owner of a parameter that no listed model has. Where a search is needed and `may_search` is
        False, the roots themselves are the models and `needs_search` stays True.
        """
        self.dirty = False
        named = [(name, module) for name, ref in self._named if (module := ref()) is not None]
        owned = {id(p): p for each in self.optimizers.all() if each is not None for p in parameters(each)}
        self._count_what_is_gone(set(owned))

        def is_left_out(module: nn.Module) -> bool:
            return id(module) not in listed and self._is_fleeting(module)

        called = [
            module
            for reference, is_borrowed in self._called.values()
            if (module := reference()) is not None and not is_left_out(module)
            if not is_borrowed or _has_own_use(module, owned.keys())
        ]
        seen = [*called, *(module for _, module in named)]
        recent = {id(module): index for index, module in enumerate(called)}
        roots = [root for reference in self._listed if (root := reference()) is not None and not is_left_out(root)]
        self.needs_search |= any(id(module) not in listed for module in seen)
        kept: list[nn.Module] = []
        if not (self.needs_search and may_search):
            kept, held = _chosen(_not_inside([*roots, *seen]), seen, set(owned), recent)
            without = owned.keys() - set().union(*held.values())
            self.needs_search |= any(self._without_owner.get(owned[key]) is None for key in without)
        if self.needs_search and may_search:
            kept, held = _chosen(_outermost(set(owned), seen, is_left_out), seen, set(owned), recent)
            self.needs_search = False
            self.searches += 1
            without = owned.keys() - set().union(*held.values())
            self._without_owner = ByIdentity()
            for key in without:
                self._without_owner.set(owned[key], True)
        self._listed = [weakref.ref(root) for root in kept]
        self._roots = [
            (weakref.ref(root), type(root), _Own.of(root, held[id(root)]))
            for root in kept
            if not owned.keys().isdisjoint(held[id(root)])
        ]
        return _with_names(kept, {id(module): name for name, module in named})

    def _count_what_is_gone(self, wanted: set[int]) -> None:
        """Count the roots found last that were freed. `wanted` holds the ids of the parameters that optimizers own now."""
        for reference, kind, own in self._roots:
            if reference() is None and own.are_alive() and not wanted.isdisjoint(own.ids):
                gone = self._gone.setdefault(kind, {})
                for dead in [key for key, (_, each) in gone.items() if not each.are_alive()]:
                    del gone[dead]
                gone[own.ids] = gone.get(own.ids, (0,))[0] + 1, own
        self._roots = []

    def _is_fleeting(self, module: nn.Module) -> bool:
        """Return whether this is a wrapper that is constructed anew for every call (torchdiffeq's): no model itself."""
        gone = self._gone.get(type(module))
        times, own = gone.get(frozenset(_parameter_ids(module)), (0, None)) if gone else (0, None)
        return times >= _OFTEN_GONE and own is not None and own.are_alive()


def _has_own_use(module: nn.Module, owned: Container[int]) -> bool:
    """Return whether a module that `torch.func.functional_call` calls is a model.

    `functional_call` uses only the code of the module. The module's own parameters are used where it is a frozen base, or
    where an optimizer owns them. Otherwise the script keeps the values elsewhere.
    """
    own = list(parameters_of(module))
    return any(id(each) in owned for each in own) or not any(each.requires_grad or each.is_meta for each in own)


def _chosen(
    candidates: list[nn.Module], seen: list[nn.Module], wanted: set[int], recent: dict[int, int]
) -> tuple[list[nn.Module], dict[int, set[int]]]:
    """Return the candidates that are models, and module id -> parameter ids of all modules considered."""
    roots = list({id(module): module for module in candidates}.values())
    held = {key: _parameter_ids(module) for key, module in {id(m): m for m in (*seen, *roots)}.items()}
    needed = wanted.union(*(held[id(module)] for module in seen))
    return _without_parts([(root, held[id(root)]) for root in roots], needed, recent), held


def _not_inside(candidates: list[nn.Module]) -> list[nn.Module]:
    """Return the candidates that are not inside another one. Two that are inside each other both stay."""
    roots = {id(module): module for module in candidates}
    inside = {key: {*map(id, modules_of(module))} for key, module in roots.items()}
    return [
        module
        for key, module in roots.items()
        if not any(key in parts and other not in inside[key] for other, parts in inside.items() if other != key)
    ]


def _outermost(wanted: set[int], called: list[nn.Module], is_left_out: Callable[[nn.Module], bool]) -> list[nn.Module]:
    """Return the outermost modules around called modules and owners of wanted parameters, without those left out.

    One scan of the garbage collector's list takes about 20 ms for 200,000 objects, and is needed only in the rare case of a
    new module or parameter. It also finds what no construction hook would: modules that were deep-copied or unpickled.
    """
    parents: dict[int, list[nn.Module]] = {}
    seeds: dict[int, nn.Module] = {id(module): module for module in called}
    # `type(o)` and not isinstance, which would resolve a lazy proxy of the script.
    kinds = module_classes()
    for module in [found for found in gc.get_objects() if type(found) in kinds]:
        if is_left_out(module) or is_compiled_graph(module):
            continue
        for child in vars(module).get("_modules", {}).values():
            if child is not None:
                parents.setdefault(id(child), []).append(module)
        if not wanted.isdisjoint(map(id, vars(module).get("_parameters", {}).values())):
            seeds[id(module)] = module
    return _tops(list(seeds.values()), parents)


def _tops(seeds: list[nn.Module], parents: dict[int, list[nn.Module]]) -> list[nn.Module]:
    """Return the outermost modules around the seeds; a seed within none of them, as in a cycle, is returned itself."""
    tops: list[nn.Module] = []
    children: dict[int, list[int]] = {}
    seen, waiting = {id(seed) for seed in seeds}, seeds[::-1]
    while waiting:
        current = waiting.pop()
        above = parents.get(id(current), ())
        if not above:
            tops.append(current)
        for parent in above:
            children.setdefault(id(parent), []).append(id(current))
            if id(parent) not in seen:
                seen.add(id(parent))
                waiting.append(parent)
    within, entered = {id(top) for top in tops}, [id(top) for top in tops]
    while entered:
        for child in children.get(entered.pop(), ()):
            if child not in within:
                within.add(child)
                entered.append(child)
    return tops + [seed for seed in seeds if id(seed) not in within]


def _parameter_ids(root: nn.Module) -> set[int]:
    """Return the ids of all its parameters. `root.parameters()` also makes their names, and takes three times as long."""
    found: set[int] = set()
    for module in modules_of(root):
        found.update(map(id, module._parameters.values()))  # noqa: SLF001 - as above
    found.discard(id(None))
    return found


def _without_parts(
    roots: list[tuple[nn.Module, set[int]]], needed: set[int], recent: dict[int, int]
) -> list[nn.Module]:
    """Drop roots whose needed parameters another root has too. Of equal roots the one called last stays.

    Each root comes with the ids of its parameters. `needed` holds the ids of the parameters that an optimizer owns or a
    called module has. Other parameters of a root (the rest of a pretrained model whose encoders have moved into another)
    are no reason to list it.
    """
    held = [(root, own) for root, own in roots if own & needed]
    held.sort(key=lambda entry: (len(entry[1] & needed), recent.get(id(entry[0]), -1), len(entry[1])), reverse=True)
    kept: list[tuple[nn.Module, set[int]]] = []
    for root, own in held:
        if not any(own & needed <= other for _, other in kept):
            kept.append((root, own))
    order = {id(root): index for index, (root, _) in enumerate(roots)}
    return sorted((root for root, _ in kept), key=lambda root: order[id(root)])


def _with_names(roots: list[nn.Module], given: dict[int, str]) -> list[tuple[str, nn.Module]]:
    variables: dict[int, str] = {}
    for name, value in list(vars(sys.modules.get("__main__", object)).items()):
        if issubclass(type(value), nn.Module) and not name.startswith("_"):
            variables.setdefault(id(value), name)
    named: dict[str, nn.Module] = {}
    for root in roots:
        # A compiled module has the name of the wrapper around it, or else its own.
        inner = compiled_module(root) or root
        known = (names.get(id(module)) for names in (given, variables) for module in (root, inner))
        named[_unused(next(filter(None, known), type(inner).__name__), named)] = root
    return list(named.items())


def _unused(name: str, taken: Container[str]) -> str:
    numbered = (f"{name}_{number}" for number in itertools.count(2))
    return next(free for free in itertools.chain([name], numbered) if free not in taken)
