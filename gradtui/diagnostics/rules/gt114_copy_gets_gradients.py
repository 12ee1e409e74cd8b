"""GT114: a copy of a model that trains is in no optimizer and accumulates gradients."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.diagnostics.parameters import elements, orphans_with_gradient, paths
from gradtui.diagnostics.rule import Match, Rule
from gradtui.protocol.vocabulary import ModelInfo, ParameterState
from gradtui.state.findings import Level
from gradtui.state.run_state import RunState, TreeState
from gradtui.state.selectors import subtree


def check(state: RunState) -> Iterator[Match]:
    """Match a model whose parameters are orphans with gradients, and have the shapes of a model that trains."""
    tree = state.tree
    with_gradient = set(orphans_with_gradient(tree))
    trained = [model for model in tree.models if ParameterState.TRAINED.value in _letters(tree, model)]
    for model in tree.models if with_gradient else ():
        orphans = [index for index in subtree(tree.modules[model.root]) if index in with_gradient]
        original = next((each for each in trained if _shapes(tree, each) == _shapes(tree, model)), None)
        if not orphans or original is None or original is model:
            continue
        yield Match(
            f"{model.name}, a copy of {original.name} in no optimizer, gets gradients that nothing clears",
            {"tensors": len(orphans), "elements": elements(tree, orphans)},
            paths(tree, orphans),
            key=str(model.number),
        )


def _letters(tree: TreeState, model: ModelInfo) -> str:
    where = subtree(tree.modules[model.root])
    return tree.states[where.start : where.stop]


def _shapes(tree: TreeState, model: ModelInfo) -> list[tuple[int, ...]]:
    return [tree.parameters[index].shape for index in subtree(tree.modules[model.root])]


RULE = Rule(
    "GT114",
    Level.WARNING,
    "a copy of the model accumulates gradients",
    "backward runs through the copy as well, which costs time and memory and can change what the original learns",
    "run the copy under torch.no_grad(), or detach its output",
    check,
    explains=frozenset({"GT106"}),
    needs=lambda state: None if len(state.tree.models) > 1 else "only one model was found",
)
