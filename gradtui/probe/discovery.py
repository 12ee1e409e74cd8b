"""Finding the models and optimizers of a script that knows nothing of us.

Models are the outermost modules that own a parameter of a live optimizer, and root modules that were called and have
parameters. A model whose parameters all belong to another one (the pair of encoders that a prompt learner wraps) is part
of that one, not a model of its own.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterable

import torch
from torch import nn
from torch.optim import Optimizer


class Discovery:
    """Weakly remembers what was seen and says which models that makes."""

    def __init__(self) -> None:
        self.dirty = False
        """Something new was seen since the last `models`."""
        self._optimizers: list[weakref.ref[Optimizer]] = []
        self._known_optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._called: dict[int, weakref.ref[nn.Module]] = {}
        self._named: list[tuple[str, weakref.ref[nn.Module]]] = []

    def saw_optimizer(self, optimizer: Optimizer) -> None:
        """An optimizer was made or stepped."""
        if optimizer not in self._known_optimizers:
            self._known_optimizers.add(optimizer)
            self._optimizers.append(weakref.ref(optimizer))
            self.dirty = True

    def saw_root(self, module: nn.Module) -> None:
        """A module was called from outside any other module."""
        known = self._called.get(id(module))
        if known is not None and known() is module:
            return
        # Loss functions are modules too, and some scripts make a new one every step.
        if next(module.parameters(), None) is not None:
            self._called = {key: ref for key, ref in self._called.items() if ref() is not None}
            self._called[id(module)] = weakref.ref(module)
            self.dirty = True

    def name_model(self, name: str, module: nn.Module) -> None:
        """The script named this model to us itself."""
        self._named.append((name, weakref.ref(module)))
        self.dirty = True

    def optimizers(self) -> list[Optimizer | None]:
        """Every optimizer seen, in order; None in the place of one that was freed."""
        return [reference() for reference in self._optimizers]

    def models(self) -> list[tuple[str, nn.Module]]:
        """The models of the run now, as (name, root)."""
        self.dirty = False
        named = [(name, module) for name, ref in self._named if (module := ref()) is not None]
        called = [module for ref in self._called.values() if (module := ref()) is not None]
        wanted = {id(p) for optimizer in self.optimizers() if optimizer is not None for p in _owned(optimizer)}
        roots = _outermost(wanted, [*called, *(module for _, module in named)])
        recent = {id(module): place for place, module in enumerate(called)}
        kept = _without_parts(roots, recent)
        names = {id(module): name for name, module in named}
        return _with_names(kept, names)


def _owned(optimizer: Optimizer) -> Iterable[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _outermost(wanted: set[int], called: list[nn.Module]) -> list[nn.Module]:
    """The outermost modules around the called ones and around the owners of the wanted parameters.

    One scan of the garbage collector's list, about 60 ms for 300,000 objects, in the rare event that something new was
    seen. It also finds what no construction hook would: modules that were deep-copied or unpickled.
    """
    parents: dict[int, list[nn.Module]] = {}
    seeds: dict[int, nn.Module] = {id(module): module for module in called}
    # `type(o)` and not isinstance: a lazy proxy of the script's must not be woken up by being looked at.
    for module in [found for found in gc.get_objects() if issubclass(type(found), nn.Module)]:
        for child in vars(module).get("_modules", {}).values():
            if child is not None:
                parents.setdefault(id(child), []).append(module)
        if any(id(p) in wanted for p in vars(module).get("_parameters", {}).values()):
            seeds[id(module)] = module
    roots: dict[int, nn.Module] = {}
    for seed in seeds.values():
        for root in _climb(seed, parents):
            roots[id(root)] = root
    return list(roots.values())


def _climb(module: nn.Module, parents: dict[int, list[nn.Module]]) -> list[nn.Module]:
    tops, seen, waiting = [], {id(module)}, [module]
    while waiting:
        current = waiting.pop()
        above = parents.get(id(current), [])
        if not above:
            tops.append(current)
        for parent in above:
            if id(parent) not in seen:
                seen.add(id(parent))
                waiting.append(parent)
    return tops


def _without_parts(roots: list[nn.Module], recent: dict[int, int]) -> list[nn.Module]:
    """Drop roots without parameters and those whose parameters another root has too; of equals the last called stays."""
    sizes = [(root, {id(p) for p in root.parameters()}) for root in roots]
    sizes = [(root, own) for root, own in sizes if own]
    sizes.sort(key=lambda entry: (len(entry[1]), recent.get(id(entry[0]), -1)), reverse=True)
    kept: list[tuple[nn.Module, set[int]]] = []
    for root, own in sizes:
        if not any(own <= other for _, other in kept):
            kept.append((root, own))
    order = {id(root): place for place, root in enumerate(roots)}
    return sorted((root for root, _ in kept), key=lambda root: order[id(root)])


def _with_names(roots: list[nn.Module], given: dict[int, str]) -> list[tuple[str, nn.Module]]:
    variables: dict[int, str] = {}
    for name, value in list(vars(sys.modules["__main__"]).items()):
        if issubclass(type(value), nn.Module) and not name.startswith("_"):
            variables.setdefault(id(value), name)
    taken: dict[str, int] = {}
    named = []
    for root in roots:
        name = given.get(id(root)) or variables.get(id(root)) or type(root).__name__
        taken[name] = taken.get(name, 0) + 1
        named.append((name if taken[name] == 1 else f"{name}_{taken[name]}", root))
    return named
