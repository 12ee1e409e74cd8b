"""Compare the model of a parameter then and now: a script may build another model from the parts of one.

Training thread only.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable

from torch import nn

from gradtui.probe.model.module_tree import ModuleTree

Lineage = tuple[tuple[str, "weakref.ref[nn.Module]"], ...]
"""(class name, module) of the module that owns a parameter and of every module around it, the root last."""


def lineage(index: int, tree: ModuleTree) -> Lineage:
    """Return the modules around the parameter with this index."""
    return _from(tree.owners[index], tree)


def lineages(indices: Iterable[int], tree: ModuleTree) -> list[Lineage]:
    """Return the lineage of each of these parameters. Parameters of one module share theirs."""
    modules = [tree.owners[index] for index in indices]
    of_module = {module: _from(module, tree) for module in set(modules)}
    return [of_module[module] for module in modules]


def _from(module: int, tree: ModuleTree) -> Lineage:
    return tuple([(tree.modules[each].type_name, tree.module_refs[each]) for each in tree.around(module)])


def is_same_model(before: Lineage, now: Lineage) -> bool:
    """Return whether the model is the same, was wrapped or unwrapped, or has a new wrapper of the same class."""
    return _has(now, _model(before)) or _has(before, _model(now)) or _is_wrapped_anew(before, now)


def _is_wrapped_anew(before: Lineage, now: Lineage) -> bool:
    if _model(before) is not None or before[-1][0] != now[-1][0]:
        return False
    return _has(now, next((module for _, reference in reversed(before) if (module := reference()) is not None), None))


def _model(above: Lineage) -> nn.Module | None:
    return above[-1][1]()


def _has(above: Lineage, module: nn.Module | None) -> bool:
    return module is not None and any(reference() is module for _, reference in above)
