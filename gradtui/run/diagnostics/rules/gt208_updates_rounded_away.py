"""GT208: updates of bfloat16 or float16 parameters are lost to rounding."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.vocabulary import ParameterState
from gradtui.run.diagnostics.parameters import elements, named, owner_of, paths
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

_STEP = {"bfloat16": 2.0**-9, "float16": 2.0**-12}
"""The smallest relative change of an element that is not zero: half the distance of neighbours, which have 8 or 11 bits."""
_CHANGED = 0.02
"""Share of the elements that change, below which the updates count as lost."""
_MEASUREMENTS = 3


def check(state: RunState) -> Iterator[Match]:
    """Match parameters with a gradient whose update is so small that nearly all elements stay as they are.

    Where a share s of the elements changes by at least the relative step r of the type, the ratio of the norms of update and
    parameter is about r * sqrt(s) or more, for elements of one size.
    """
    tree = state.tree
    lost: list[int] = []
    for index, info in enumerate(tree.parameters):
        step = _STEP.get(info.dtype.removeprefix("torch."))
        if step is None or tree.states[index] != ParameterState.TRAINED.value or not _has_learning_rate(state, index):
            continue
        ratios = tree.ratios.of(index).values[-_MEASUREMENTS:]
        if len(ratios) == _MEASUREMENTS and all(ratio < step * _CHANGED**0.5 for ratio in ratios):
            lost.append(index)
    if not lost:
        return
    ratio = tree.ratios.of(lost[0]).values[-1]
    kind = tree.parameters[lost[0]].dtype.removeprefix("torch.")
    change = "changes although it gets" if len(lost) == 1 else "change although they get"
    yield Match(
        f"{named(tree, lost)} hardly {change} a gradient: {kind} rounds the updates away (update ratio {ratio:.2g})",
        {"tensors": len(lost), "elements": elements(tree, lost), "update_ratio": ratio},
        paths(tree, lost),
    )


def _has_learning_rate(state: RunState, parameter: int) -> bool:
    owner, read = owner_of(state, parameter), state.groups.optimizers if state.groups is not None else ()
    if owner is None or owner[0] >= len(read) or owner[1] >= len(read[owner[0]]):
        return False
    return bool(read[owner[0]][owner[1]].learning_rate)


RULE = Rule(
    "GT208",
    Level.WARNING,
    "updates are lost to rounding",
    "a 16-bit number cannot change by less than a few thousandths of itself, so a smaller update is dropped",
    "keep the weights in float32 and use torch.autocast, or use an optimizer with stochastic rounding",
    check,
    needs=lambda state: (
        None
        if any(info.dtype.removeprefix("torch.") in _STEP for info in state.tree.parameters)
        else "no parameter is of a 16-bit type"
    ),
)
