"""GT114: a copy of a model that trains, or a teacher, is in no optimizer and accumulates gradients."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.vocabulary import ModelInfo, ParameterState
from gradtui.run.diagnostics.parameters import elements, in_state, optimized, paths, unowned_with_gradient
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import subtree
from gradtui.run.state.tree_state import TreeState


def check(state: RunState) -> Iterator[Match]:
    """Match a model of orphans with gradients: a copy of a model that trains, or one in eval mode beside it."""
    tree, owned = state.tree, optimized(state)
    with_gradient = set(unowned_with_gradient(state))
    of_optimizers = set(in_state(tree, ParameterState.TRAINED)) & owned
    trained = [model for model in tree.models if not of_optimizers.isdisjoint(subtree(tree.modules[model.root]))]
    for model in tree.models if with_gradient else ():
        orphans = [index for index in subtree(tree.modules[model.root]) if index in with_gradient]
        alike = trained if model.number in state.evidence.copied_models else []
        original = next((each for each in alike if _shapes(tree, each) == _shapes(tree, model)), None)
        if not orphans or model in trained or (original is None and not _is_teacher(tree, model, trained)):
            continue
        kind = (
            f"a copy of {original.name} in no optimizer" if original is not None else "in eval mode and in no optimizer"
        )
        yield Match(
            f"{model.name}, {kind}, gets gradients that nothing clears",
            {"tensors": len(orphans), "elements": elements(tree, orphans)},
            paths(tree, orphans),
            key=str(model.number),
        )


def _is_teacher(tree: TreeState, model: ModelInfo, trained: list[ModelInfo]) -> bool:
    """Return whether a model without any trained parameter runs in eval mode, and those that train in train mode."""
    training = tree.gradient_flow.training if tree.gradient_flow is not None else ""
    of_others = {training[each.root : each.root + 1] for each in trained}
    return training[model.root : model.root + 1] == "0" and of_others == {"1"}


def _shapes(tree: TreeState, model: ModelInfo) -> list[tuple[int, ...]]:
    return [tree.parameters[index].shape for index in subtree(tree.modules[model.root])]


RULE = Rule(
    "GT114",
    Level.WARNING,
    "a copy of the model, or a teacher, accumulates gradients",
    "backward runs through it as well, which costs time and memory and can change what the original learns",
    "freeze it with requires_grad_(False); if no gradient needs to pass through it, run it under torch.no_grad()",
    check,
    explains=frozenset({"GT106"}),
    needs=lambda state: None if len(state.tree.models) > 1 else "only one model was found",
)
