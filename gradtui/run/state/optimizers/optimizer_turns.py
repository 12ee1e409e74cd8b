"""Which optimizers of a run step in turns, as in a GAN, and what of them is shown. Pure."""

from __future__ import annotations

import math

from gradtui.dataclass import dataclass
from gradtui.run.state.optimizers.optimizer_names import optimizer_names
from gradtui.run.state.parts.curves import OptimizerCurves
from gradtui.run.state.run_state import RunState
from gradtui.run.state.series import Series

MAX_SHOWN = 4
"""Optimizers whose values are shown; the others are counted."""
_COMPARED, _WITHIN = 8, 64
"""The newest losses of an optimizer that are compared, and among how many of another one they are looked up."""


@dataclass(frozen=True)
class ShownOptimizer:
    """One of the optimizers that step in turns."""

    index: int
    name: str
    curves: OptimizerCurves
    has_own_loss: bool
    """False where it applies gradients of the same backwards as one before it, so that the losses are the same."""
    steps: int
    """Steps that it has made, or has made since an optimizer of the same models was gone."""


@dataclass(frozen=True)
class OptimizerTurns:
    """The optimizers that step in turns, in the order of their first steps."""

    shown: tuple[ShownOptimizer, ...] = ()
    """Empty where there is one, and where they are the parts of one model's optimizer: only the main one is shown then."""
    omitted: int = 0
    """The number of the others, none of which is in `shown`."""
    parts: int = 0
    """The number of the optimizers of one model that make its steps together, such as one for each parameter; else 0."""


NO_TURNS = OptimizerTurns()


def optimizer_turns(state: RunState) -> OptimizerTurns:
    """Return which optimizers step in turns, since the present main optimizer took over."""
    if len(state.of_optimizers) < 2:
        return NO_TURNS
    indices = _in_turns(state)
    if len(indices) < 2:
        return NO_TURNS
    if _are_parts(state, indices):
        return OptimizerTurns(parts=max(len(indices), sum(count > 0 for count in state.optimizer_steps)))
    names, shown = optimizer_names(state), list[ShownOptimizer]()
    for index in indices[:MAX_SHOWN]:
        curves = state.of_optimizers[index]
        is_own = not any(_is_same(each.curves.loss, curves.loss) for each in shown)
        shown.append(ShownOptimizer(index, names[index], curves, is_own, steps_of(state, index)))
    return OptimizerTurns(tuple(shown), len(indices) - len(shown))


def _in_turns(state: RunState) -> list[int]:
    main = state.of_optimizers.get(state.main_optimizer if state.main_optimizer is not None else -1)
    ends = ends_of(main) if main is not None else None
    if ends is None:
        return []
    since, until = max(ends[0], state.main_since), ends[1]
    return [
        index
        for index, curves in state.of_optimizers.items()
        if curves is main or ((own := ends_of(curves)) is not None and own[0] <= until and own[1] >= since)
    ]


def ends_of(curves: OptimizerCurves) -> tuple[int, int] | None:
    """Return the first and the last measured step."""
    known = [each.steps for each in (curves.loss, curves.gradient_norm) if len(each)]
    return (min(steps[0] for steps in known), max(steps[-1] for steps in known)) if known else None


def _are_parts(state: RunState, indices: list[int]) -> bool:
    """Return whether these are the optimizers of one model, and more than a few or each of a single parameter."""
    models = {state.of_optimizers[index].only_model for index in indices}
    if len(models) > 1 or None in models:
        return False
    known = [state.optimizers[index] for index in indices if index < len(state.optimizers)]
    return len(indices) > MAX_SHOWN or all(len(each.parameters) + each.unknown_parameters == 1 for each in known)


def _is_same(one: Series, other: Series) -> bool:
    """Return whether the losses are those of the same backwards. Of different losses hardly two are equal to the bit."""
    newest = {value for value in other.values[-_COMPARED:] if math.isfinite(value)}
    return bool(newest) and 2 * len(newest.intersection(one.values[-_WITHIN:])) >= len(newest)


def main_steps(state: RunState) -> int:
    """Return the steps of the main optimizer; all steps where the script has none, or it is unknown."""
    main = state.main_optimizer
    if main is None or main < 0:
        return state.step
    if main in state.of_optimizers:
        return steps_of(state, main)
    return state.optimizer_steps[main] if main < len(state.optimizer_steps) else 0


def stride_of(state: RunState, index: int | None = None) -> int:
    """Return how many steps apart the steps of an optimizer are at most, as far as it takes turns evenly.

    Without an index it is that of the main optimizer.
    """
    own = main_steps(state) if index is None else steps_of(state, index)
    return math.ceil(state.step / own) if 0 < own < state.step else 1


def iteration_stride(state: RunState) -> int:
    """Return how many steps the optimizers make together in an iteration of the loop."""
    return math.ceil(state.step / state.iterations) if state.iterations and state.iterations < state.step else 1


def summarised_steps(state: RunState) -> int:
    """Return the steps of the main optimizer, measured or not, over which `norm_summary` goes."""
    return max(main_steps(state) - state.norm_summary.steps_before, state.norm_summary.measured_steps)


def steps_of(state: RunState, index: int) -> int:
    """Return the steps of an optimizer with curves, and of those of the same models that were gone before it."""
    counts = state.optimizer_steps
    curves = state.of_optimizers[index]
    every = {index, *curves.former}
    return curves.former_steps + sum(counts[each] for each in every if 0 <= each < len(counts))
