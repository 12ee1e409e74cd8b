"""Find models that are copies of others, and share a backward with them. Training thread, in sampled steps."""

from __future__ import annotations

from collections.abc import Iterable, Set

from gradtui.probe.frozen import BitSample
from gradtui.probe.model import ModuleTree
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.events import ModelCopied


class CopiedModels:
    """Compares a few elements of models with the same shapes, once for each listing."""

    def __init__(self, context: ProbeContext) -> None:
        self._emit, self._clock, self._counter = context.emit, context.clock, context.counter
        self._copied: set[int] = set()
        self._joined: set[int] = set()
        """Models with another one in the graph of a backward. The script trains a copy that has backwards for itself."""
        self._reported: set[int] = set()
        self._listing, self._is_due = 0, False
        self._tree, self._under_way = ModuleTree(), BitSample[int]([])

    def step_begins(self, tree: ModuleTree) -> None:
        """Compare the models before a step, and report the comparison before it once its values are on the host."""
        if tree.listing != self._listing:
            self._listing, alike = tree.listing, _of_equal_shapes(tree)
            live = dict(tree.live_parameters()) if alike else {}
            self._tree, self._is_due = tree, bool(alike)
            self._under_way = BitSample([(index, live[index]) for index in alike if index in live], few=True)
        if self._is_due and self._tree is tree and self._under_way.is_there:
            self._is_due, bits = False, self._under_way.bits()
            values: dict[tuple[object, ...], list[int]] = {}
            for model, where in enumerate(_parameters(tree)):
                if where and all(index in bits for index in where):
                    values.setdefault(tuple(bits[index] for index in where), []).append(model)
            self._found(tree, [model for models in values.values() if len(models) > 1 for model in models])

    def wrote(self, tree: ModuleTree, parameters: Iterable[int]) -> None:
        """Handle that the script has written to parameters that no optimizer has, as it does where it renews a copy."""
        roots = {tree.roots[tree.owners[index]] for index in parameters}
        self._found(tree, [index for index, model in enumerate(tree.models) if model.root in roots] if roots else [])

    def in_one_backward(self, tree: ModuleTree, roots: Set[int]) -> None:
        """Handle that a backward runs through several models, which have these roots."""
        self._joined.update(model.number for model in tree.models if model.root in roots)
        self._report()

    def _found(self, tree: ModuleTree, models: Iterable[int]) -> None:
        self._copied.update(tree.models[model].number for model in models)
        self._report()

    def _report(self) -> None:
        for number in (self._copied & self._joined) - self._reported:
            self._reported.add(number)
            self._emit(ModelCopied(self._clock.at(), self._counter.steps + 1, number))


def _parameters(tree: ModuleTree) -> list[list[int]]:
    """Return the indexes of the parameters of each model."""
    models = {model.root: index for index, model in enumerate(tree.models)}
    found: list[list[int]] = [[] for _ in tree.models]
    for index, module in enumerate(tree.owners):
        found[models[tree.roots[module]]].append(index)
    return found


def _of_equal_shapes(tree: ModuleTree) -> list[int]:
    """Return the parameters of the models that have the shapes of another one."""
    groups: dict[tuple[object, ...], list[list[int]]] = {}
    for where in _parameters(tree):
        groups.setdefault(tuple(tree.parameters[index].shape for index in where), []).append(where)
    return [index for alike in groups.values() if len(alike) > 1 for where in alike for index in where]
