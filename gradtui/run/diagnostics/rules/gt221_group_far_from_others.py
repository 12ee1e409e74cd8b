"""GT221: the updates of one param group are far too small or too large, and those of the other groups are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from gradtui.dataclass import dataclass
from gradtui.run.diagnostics.parameters import elements, paths
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.norms.group_ratios import began_with_values, since_its_rate_rose, weights
from gradtui.run.state.norms.usual_ratio import USUAL_RATIO
from gradtui.run.state.optimizers.param_groups import ParamGroup, param_groups
from gradtui.run.state.run_state import RunState
from gradtui.run.text import group_title, short_rate

_FACTOR = 30.0
"""A group is apart from the others if its ratio is this many times smaller, or larger, than that of each of them. The groups of
layer-wise learning rates are near to each other."""
_SMALL, _LARGE = USUAL_RATIO / 100, USUAL_RATIO * 100
_NEWEST = 8
"""The number of updates of a weight that must have been measured."""
_BEGIN = 11
"""Earlier steps do not count: an optimizer's first steps are of another size."""
_SPARSE = 0.5
"""The share of zeros in a gradient above which it is that of an embedding, of which each batch has some rows."""


@dataclass(frozen=True)
class _Measured:
    """A group whose weights were measured often enough."""

    group: ParamGroup
    weights: Sequence[int]
    ratio: float
    """The median of the ratios of its weights."""
    is_small: bool
    """No update of half of its weights was larger than `_SMALL`."""
    is_large: bool
    """No new update of half of its weights was smaller than `_LARGE`, and these did not begin at zero: such a weight, like the
    second matrix of LoRA, has large ratios for long."""


def check(state: RunState) -> Iterator[Match]:
    """Match groups whose weights move by 1e-5 or less, or by 0.1 or more, where those of the others do not."""
    for together in _measured(state).values():
        for each in together:
            others = [other for other in together if other is not each]
            if not others or not (each.is_small or each.is_large):
                continue
            nearest = min(others, key=lambda other: max(other.ratio / each.ratio, each.ratio / other.ratio))
            factor = nearest.ratio / each.ratio if each.is_small else each.ratio / nearest.ratio
            if factor >= _FACTOR and all((other.ratio > each.ratio) is each.is_small for other in others):
                yield _match(state, each, nearest, factor)


def _match(state: RunState, far: _Measured, nearest: _Measured, factor: float) -> Match:
    group, rate, title = far.group, far.group.rate, group_title(state, far.group)
    wanted = float(f"{rate * nearest.ratio / far.ratio:.0e}") if rate is not None else None
    number = f"optimizer={group.optimizer} group={group.number}"
    return Match(
        f"the updates of {title} are {short_rate(far.ratio)} of its weights, {factor:,.0f} times {_less(far)} than those of "
        f"{group_title(state, nearest.group)}",
        {
            "update_ratio": far.ratio,
            "nearest_update_ratio": nearest.ratio,
            "times": factor,
            "learning_rate": rate,
            "learning_rate_to_try": wanted,
            "tensors": len(far.weights),
            "elements": elements(state.tree, far.weights),
        },
        paths(state.tree, far.weights),
        remedy=f"try a learning rate of {short_rate(wanted)} for {title}; now it is {short_rate(rate)}"
        if wanted
        else None,
        command=f"set-lr {wanted:g} {number}" if wanted else None,
        key=f"{group.optimizer} {group.number}",
        optimizer=group.optimizer,
    )


def _less(far: _Measured) -> str:
    return "less" if far.is_small else "more"


def _measured(state: RunState) -> dict[int, list[_Measured]]:
    """Return the groups by optimizer, if several of it were measured."""
    found: dict[int, list[_Measured]] = {}
    for group in param_groups(state):
        ratios = {index: _ratios(state, group, index) for index in weights(state.tree, group.parameters)}
        ratios = {index: each for index, each in ratios.items() if len(each) >= _NEWEST and each[-1] > 0}
        if ratios:
            newest = {index: each[-_NEWEST:] for index, each in ratios.items()}
            found.setdefault(group.optimizer, []).append(
                _Measured(
                    group,
                    tuple(ratios),
                    median(median(each) for each in newest.values()),
                    median(max(each) for each in ratios.values()) < _SMALL,
                    median(min(newest[index]) * began_with_values(state.tree, index) for index in newest) > _LARGE,
                )
            )
    return {optimizer: groups for optimizer, groups in found.items() if len(groups) > 1}


def _ratios(state: RunState, group: ParamGroup, index: int) -> list[float]:
    """Return the update ratios of a weight that count; none of one with a sparse gradient."""
    figures = state.tree.gradient_figures.get(index)
    if figures is None or figures[1].zero_fraction > _SPARSE:
        return []
    return since_its_rate_rose(state, (group.optimizer, group.number), index, _BEGIN)


def _needs(state: RunState) -> str | None:
    if len(param_groups(state)) < 2:
        return "the optimizer has one parameter group"
    return None if _measured(state) else f"too few update ratios of several groups were read after step {_BEGIN - 1}"


RULE = Rule(
    "GT221",
    Level.NOTE,
    "the updates of a parameter group are far from those of the others",
    "as a rule of thumb a step changes a weight by about a thousandth: a group that moves by far less hardly learns, and one "
    "that moves by far more does not stay near what it has learned",
    "give the group another learning rate",
    check,
    needs=_needs,
)
