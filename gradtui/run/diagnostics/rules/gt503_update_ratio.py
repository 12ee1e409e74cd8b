"""GT503: the updates of a weight are far larger or far smaller than a thousandth of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradtui.protocol.vocabulary import ParameterState
from gradtui.run.diagnostics.parameters import elements, named, owner_of, paths
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

_SMALL, _LARGE = 1e-5, 1e-1
_NEWEST = 3
_BEGIN = 11
"""Earlier steps do not count: a weight that begins at 0 and moves by equal steps has the ratio 1 / n in the step after n."""


def check(state: RunState) -> Iterator[Match]:
    """Match weights whose last update ratios are all a hundred times larger, or smaller, than 1e-3."""
    last = _last_ratios(state)
    large = [index for index, ratios in last.items() if min(ratios) > _LARGE]
    small = [index for index, ratios in last.items() if 0 < max(ratios) < _SMALL and _is_constant(state, index)]
    for found, limit in ((small, f"less than {_SMALL:g}"), (large, f"more than {_LARGE:g}")):
        if found:
            ratio = last[found[0]][-1]
            yield Match(
                f"the last {_NEWEST} measured steps changed {named(state.tree, found)} by {limit} of the norm ({ratio:.2g})",
                {"tensors": len(found), "elements": elements(state.tree, found), "update_ratio": ratio},
                paths(state.tree, found),
                key=limit,
            )


def _last_ratios(state: RunState) -> dict[int, Sequence[float]]:
    """Return the newest update ratios of the weights that train, if none of them is of the first steps."""
    tree, trained = state.tree, ParameterState.TRAINED.value
    weights = [index for index, info in enumerate(tree.parameters) if len(info.shape) > 1]
    curves = {index: tree.ratios.of(index) for index in weights if tree.states[index] == trained}
    late = [index for index, curve in curves.items() if len(curve) >= _NEWEST and curve.steps[-_NEWEST] >= _BEGIN]
    return {index: curves[index].values[-_NEWEST:] for index in late}


def _is_constant(state: RunState, index: int) -> bool:
    """Return whether no setting of the parameter's group, such as the learning rate, changed meanwhile."""
    since = state.groups_since.get(owner_of(state, index) or (-1, -1))
    return since is not None and since[1] <= state.tree.ratios.of(index).steps[-_NEWEST]


RULE = Rule(
    "GT503",
    Level.NOTE,
    "updates are far from a thousandth of the weights",
    "as a rule of thumb a step changes a weight by about a thousandth: with much more it is unstable, with much less slow",
    "raise the learning rate where the ratio is small, and lower it where the ratio is large",
    check,
    needs=lambda state: None if _last_ratios(state) else f"too few update ratios were read after step {_BEGIN - 1}",
    is_default=False,
)
