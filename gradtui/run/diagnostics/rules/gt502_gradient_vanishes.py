"""GT502: the gradient becomes smaller and smaller on its way to the first layers."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import geometric_mean

from gradtui.protocol.vocabulary import ModelInfo, ParameterState
from gradtui.run.diagnostics.parameters import paths
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import subtree
from gradtui.run.state.tree_state import TreeState

_LAYERS, _SHARE = 6, 0.01


def check(state: RunState) -> Iterator[Match]:
    """Match models whose gradient falls below 1 % from the last third of the layers to the middle one, and once more."""
    for model, layers in _deep_models(state.tree):
        sizes, third = list(layers.values()), len(layers) // 3
        first, middle, last = map(geometric_mean, (sizes[:third], sizes[third:-third], sizes[-third:]))
        if first < _SHARE * middle and middle < _SHARE * last:
            yield Match(
                f"the gradient of {model.name} vanishes with depth: its root mean square is {last:.1e} in the last third "
                f"of {len(sizes):,} layers, {middle:.1e} in the middle third and {first:.1e} in the first third",
                {"layers": len(sizes), "first": first, "middle": middle, "last": last},
                paths(state.tree, list(layers)[:third]),
                key=str(model.number),
            )


def _deep_models(tree: TreeState) -> Iterator[tuple[ModelInfo, dict[int, float]]]:
    """Yield the models with enough layers: by index, in the order of calls, the root mean square of the gradient."""
    called, norms = tree.gradient_flow.called if tree.gradient_flow is not None else (), tree.norms or ()
    for model in tree.models if called and norms else ():
        found = []
        for index in subtree(tree.modules[model.root]):
            info, norm = tree.parameters[index], norms[index] or 0.0
            kind, rank = tree.modules[info.module].type_name, called[info.module]
            is_weight = len(info.shape) > 1 and rank > 0 and ("Linear" in kind or "Conv" in kind)
            if is_weight and norm > 0 and tree.states[index] == ParameterState.TRAINED.value:
                found.append((rank, index, norm / (info.local_count or info.count) ** 0.5))
        if len(found) >= _LAYERS:
            yield model, {index: size for _, index, size in sorted(found)}


RULE = Rule(
    "GT502",
    Level.NOTE,
    "the gradient vanishes with depth",
    "each layer multiplies the gradient on its way back; where the factors are below 1, the first layers hardly train",
    "add residual connections or normalisation, or use another activation or initialisation",
    check,
    needs=lambda state: None if any(_deep_models(state.tree)) else f"no model had {_LAYERS} layers with a gradient",
    is_default=False,
)
