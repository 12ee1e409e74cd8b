"""GT123: the weights that LoRA was added to train as well."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from gradtui.protocol.vocabulary import ParameterState
from gradtui.run.diagnostics.parameters import elements, in_state, paths
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_sample
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import subtree
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text.units import plural

_NAME, _TYPES = "lora", ("LoRA", "Lora")
_OF_LAYERS = ("weight", "bias")
"""What the parameters of layers are called."""
_MOST_MATRICES = 8
"""Of one layer, if there are several adapters."""
_LEAST_DIMENSIONS = 2
"""Of a weight. Biases train beside LoRA on purpose."""


def check(state: RunState) -> Iterator[Match]:
    """Match weights in a layer with LoRA matrices that are no such matrices, where both train."""
    tree = state.tree
    trained = in_state(tree, ParameterState.TRAINED)
    low_rank = {index: layer for index in trained if (layer := _layer(tree, index)) is not None}
    layers = {*low_rank.values()}
    sizes = {each: _products(tree, [index for index, layer in low_rank.items() if layer == each]) for each in layers}
    owners = {tree.parameters[index].module for index in low_rank if _is_named(tree, index)}
    base = [
        index
        for index in trained
        if index not in low_rank
        and len((known := tree.parameters[index]).shape) >= _LEAST_DIMENSIONS
        and any(index in each and (known.module in owners or prod(known.shape) in sizes[each]) for each in layers)
    ]
    if not base:
        return
    with_base = sum(any(index in each for index in base) for each in layers)
    yield Match(
        f"the base weights of {plural(with_base, 'LoRA layer')} train as well: {elements(tree, base):,} elements, and "
        f"{elements(tree, low_rank):,} of LoRA",
        {
            "layers": with_base,
            "tensors": len(base),
            "elements": elements(tree, base),
            "elements_of_lora": elements(tree, low_rank),
        },
        paths(tree, base),
    )


def _products(tree: TreeState, matrices: list[int]) -> set[int]:
    """Return the numbers of elements that products of two of these matrices have: those of the weights that they change."""
    shapes = [shape for index in matrices if len(shape := tree.parameters[index].shape) >= _LEAST_DIMENSIONS]
    flat = [(shape[0], prod(shape[1:])) for shape in shapes]
    return {rows * columns for rows, inner in flat for other, columns in flat if inner == other}


def _is_named(tree: TreeState, index: int) -> bool:
    return tree.parameters[index].path.rpartition(".")[2].startswith(_NAME)


def _layer(tree: TreeState, index: int) -> range | None:
    """Return the parameters of the layer that a LoRA matrix belongs to; None if it is no such matrix.

    The name of the matrix, or of a module around it within the layer, begins with `lora`, or the type of its module has it.
    """
    name, owner = tree.parameters[index].path.rpartition(".")[2], tree.modules[tree.parameters[index].module]
    if _is_named(tree, index) or (name not in _OF_LAYERS and any(each in owner.type_name for each in _TYPES)):
        own = subtree(owner)
        names = [tree.parameters[each].path.rpartition(".")[2] for each in own]
        # A module of nothing but matrices is within the layer.
        has_others = owner.own_parameters < len(own) or any(each in _OF_LAYERS for each in names)
        return own if has_others or owner.parent < 0 else subtree(tree.modules[owner.parent])
    while owner.parent >= 0 and owner.subtree_parameters <= _MOST_MATRICES:
        if owner.name.startswith(_NAME):
            return subtree(tree.modules[owner.parent])
        owner = tree.modules[owner.parent]
    return None


RULE = Rule(
    "GT123",
    Level.WARNING,
    "the base weights of LoRA train",
    "LoRA leaves a layer's weights as they are: if they train too, gradients and optimizer state take the memory it saves",
    "freeze the base weights: requires_grad_(False) on the model before LoRA is added to it, or on all but the LoRA matrices",
    check,
    needs=needs_sample,
)
