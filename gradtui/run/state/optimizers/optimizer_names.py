"""Names of optimizers: those of the models whose parameters they own. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from gradtui.protocol.vocabulary import OptimizerInfo
from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree.model_parts import children
from gradtui.run.state.tree_state import TreeState

_MAX_PARTS = 3
"""Models, or parts of a model, that a name contains; more are counted."""
MAX_PART_WIDTH = 20
"""Characters of one of them; of a longer path the end stays."""
BY_HAND = "no optimizer"


def optimizer_names(state: RunState) -> dict[int, str]:
    """Return the name of each optimizer with curves by its index: `Generator`, `qf1 + qf2`, `1 tensor`.

    Where several have the same name their types are added, and if these are equal too, their numbers: `GPT (Muon)`,
    `Critic (Adam 2)`. An optimizer of unknown parameters has its type and number.
    """
    indices = [*state.of_optimizers]
    if state.main_optimizer is not None and state.main_optimizer not in state.of_optimizers:
        indices.append(state.main_optimizer)
    models = {index: state.of_optimizers[index].models if index in state.of_optimizers else "" for index in indices}
    same = Counter(models.values())
    same_type = Counter((models[index], _type(state, index)) for index in indices)
    return {index: _name(state, index, name, same, same_type) for index, name in models.items()}


def optimizer_name(state: RunState, index: int) -> str:
    """Return the name of one optimizer, by the index of any of those that its curves continue."""
    return optimizer_names(state).get(state.curves_of.get(index, index)) or _name_without_models(state, index)


def _name(state: RunState, index: int, name: str, same: Counter[str], same_type: Counter[tuple[str, str]]) -> str:
    if index < 0 or not name:
        return _name_without_models(state, index)
    if same[name] == 1:
        return name
    of_type = _type(state, index)
    return f"{name} ({of_type if same_type[name, of_type] == 1 else _number(state, index)})"


def _name_without_models(state: RunState, index: int) -> str:
    return BY_HAND if index < 0 else _number(state, index)


def _type(state: RunState, index: int) -> str:
    return state.optimizers[index].type_name if 0 <= index < len(state.optimizers) else "optimizer"


def _number(state: RunState, index: int) -> str:
    return f"{_type(state, index)} {index + 1}"


def models_of(tree: TreeState, optimizer: OptimizerInfo) -> tuple[str, int | None]:
    """Return the models whose parameters an optimizer owns, or the parts of a model that it owns; empty if none is listed.

    With it the number of the model, if all its parameters are of one model. Takes as long as sorting the parameters: the
    reducer keeps the result.
    """
    owned = sorted(optimizer.parameters)
    by_model = {model.number: _labels(tree, index, owned) for index, model in enumerate(tree.models)}
    numbers = [number for number, labels in by_model.items() if labels]
    if not numbers:
        return "", None
    counts = Counter(label for labels in by_model.values() for label in labels)
    parts = [_short(label) if count == 1 else f"{_short(label)} ×{count}" for label, count in counts.items()]
    if len(parts) > _MAX_PARTS:
        parts[_MAX_PARTS - 1 :] = [f"{len(parts) - _MAX_PARTS + 1} more"]
    unknown = tensors_text(optimizer)
    only = numbers[0] if len(numbers) == 1 and not unknown else None
    return " + ".join((*parts, *([unknown] if unknown else []))), only


def tensors_text(optimizer: OptimizerInfo) -> str:
    """Return how many parameters it owns that belong to no listed model; empty if there are none."""
    count = optimizer.unknown_parameters
    return "" if not count else "1 tensor" if count == 1 else f"{count:,} tensors"


def _labels(tree: TreeState, model: int, owned: Sequence[int]) -> list[str]:
    """Return the model if the optimizer owns all of it or several parts of it, and else the parts that it owns."""
    root = tree.models[model].root
    if not _count(tree, root, owned):
        return []
    parts = _parts(tree, root, owned)
    return [tree.models[model].name if part == root else tree.modules[part].path for part in parts]


def _parts(tree: TreeState, root: int, owned: Sequence[int]) -> list[int]:
    top = _topmost(tree, root, owned)
    if top != root:
        return [top]
    module = tree.modules[root]
    if _count(tree, root, owned) == module.subtree_parameters or _has_own(tree, root, owned):
        return [root]
    within = [child for child in children(tree, root) if _count(tree, child, owned)]
    # Another optimizer may own the rest of a part that this one does not own as a whole.
    are_whole = all(_count(tree, child, owned) == tree.modules[child].subtree_parameters for child in within)
    return within if are_whole and len(within) <= _MAX_PARTS else [root]


def _topmost(tree: TreeState, root: int, owned: Sequence[int]) -> int:
    """Return the module that contains all owned parameters of a subtree: the topmost one of which nothing else is owned."""
    node = root
    while _count(tree, node, owned) < tree.modules[node].subtree_parameters and not _has_own(tree, node, owned):
        within = [child for child in children(tree, node) if _count(tree, child, owned)]
        if len(within) != 1:
            return node
        node = within[0]
    return node


def _count(tree: TreeState, index: int, owned: Sequence[int]) -> int:
    module = tree.modules[index]
    first = module.first_parameter
    return bisect_left(owned, first + module.subtree_parameters) - bisect_left(owned, first)


def _has_own(tree: TreeState, index: int, owned: Sequence[int]) -> bool:
    module = tree.modules[index]
    first = module.first_parameter
    return bisect_left(owned, first + module.own_parameters) > bisect_left(owned, first)


def _short(label: str) -> str:
    return label if len(label) <= MAX_PART_WIDTH else f"…{label[1 - MAX_PART_WIDTH :]}"
