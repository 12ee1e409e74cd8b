"""GT202: the optimizer steps, but nothing can move: no gradient is left, or the learning rate is 0."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gradtui.protocol.vocabulary import ParameterState
from gradtui.run.diagnostics.parameters import paths
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import (
    OptimizerWindows,
    last_step,
    needs_optimizer,
    optimizer_name,
    windows_by_optimizer,
)
from gradtui.run.state.findings import Level
from gradtui.run.state.optimizers.param_groups import param_groups
from gradtui.run.state.parts.learning_rates import FallingRate
from gradtui.run.state.run_state import RunState
from gradtui.run.state.series import Series
from gradtui.run.text.optimizers import group_title

_STEPS = 3
"""Steps without a gradient before it is worth a finding."""
_SHARE = 0.5
"""Share of the steps that must be without a gradient."""
_WARM_UP = 5
"""Steps with a learning rate of 0 at the start: a schedule that warms up from 0 has one."""
_LATER = 20
"""Steps with a learning rate of 0 later on: many schedules end at 0."""
_RESOLUTION = {"float32": 2.0**-25, "float64": 2.0**-54}
"""Half the distance of neighbouring numbers, relative to the larger one (IEEE 754). GT208 is about 16 bits."""
_CHANGED = 0.02
"""Share of the elements that change, below which a step counts as without effect."""
_MEASUREMENTS = 2
_MARGIN = 2
"""Powers of ten by which an update may be larger than its learning rate tells: momentum, and gradients that grow."""
_MIN_STEPS, _OF_RUN = 10, 0.1
"""Steps, and share of all steps, for which updates must have been too small. The end of a cosine schedule is shorter."""


def check(state: RunState) -> Iterator[Match]:
    """Match an optimizer whose gradients are cleared before it steps, or whose learning rates are all 0."""
    for each in windows_by_optimizer(state):
        yield from _cleared(state, each)
        yield from _no_learning_rate(state, each)
        yield from _too_small_a_rate(state, each)


def _cleared(state: RunState, each: OptimizerWindows) -> Iterator[Match]:
    empty = each.count(lambda window: window.cleared > 0 and not window.applied)
    if empty < _STEPS or empty < _SHARE * each.steps:
        return
    yield Match(
        f"the gradients are cleared between backward and the step of {optimizer_name(state, each.optimizer)}: "
        f"{empty:,} of {each.steps:,} steps had none",
        {"steps": each.steps, "steps_without_gradient": empty},
        first_step=each.first(lambda window: window.cleared > 0 and not window.applied),
        is_exact=True,
        call="clearing",
        remedy="call zero_grad() after the step, or before the backward",
        key=f"cleared {each.optimizer}",
    )


def _no_learning_rate(state: RunState, each: OptimizerWindows) -> Iterator[Match]:
    read = state.groups.optimizers if state.groups is not None else ()
    groups = read[each.optimizer] if each.optimizer < len(read) else ()
    if not groups or any(group.learning_rate != 0 for group in groups):
        yield from _no_earlier_learning_rate(state, each)
        yield from _no_rate_of_group(state, each)
        return
    since = [state.groups_since[each.optimizer, index] for index in range(len(groups))]
    first = max(latest for _, latest in since)
    steps = last_step(state, each) - first + 1
    if steps < (_WARM_UP if first <= 1 else _LATER):
        return
    yield Match(
        f"the learning rate of {optimizer_name(state, each.optimizer)} is 0 since step {max(first, 1):,}: "
        f"{steps:,} steps moved nothing",
        {"steps": steps, "learning_rate": 0.0, "groups": len(groups)},
        first_step=first,
        is_exact=True,
        call="step",
        remedy="call scheduler.step() after each optimizer step, or set a learning rate",
        key=f"learning rate {each.optimizer}",
    )


def _no_rate_of_group(state: RunState, each: OptimizerWindows) -> Iterator[Match]:
    """Match a group whose rate has always been 0. Some scripts keep it at 0 until they unfreeze it."""
    last = last_step(state, each)
    for group in param_groups(state):
        first = state.groups_since.get((group.optimizer, group.number), (0, 0))[1]
        if group.optimizer != each.optimizer or group.rate != 0 or first > 1 or last < _WARM_UP:
            continue
        yield Match(
            f"the learning rate of {group_title(state, group)} is 0 since step 1: it does not move, and other groups do",
            {"steps": last, "learning_rate": 0.0, "group": group.number},
            paths(state.tree, group.parameters),
            first_step=1,
            is_exact=True,
            level=Level.NOTE,
            remedy="set a learning rate for it, or freeze it: its gradients take time and memory for nothing",
            key=f"group {group.optimizer} {group.number}",
            optimizer=group.optimizer,
        )


def _no_earlier_learning_rate(state: RunState, each: OptimizerWindows) -> Iterator[Match]:
    first, last = state.without_rate.get(each.optimizer, (1, 0))
    steps = last - first + 1
    if steps < (_WARM_UP if first <= 1 else _LATER):
        return
    yield Match(
        f"the learning rate of {optimizer_name(state, each.optimizer)} was 0 from step {max(first, 1):,} to step {last:,} "
        f"at least: {steps:,} steps moved nothing",
        {"steps": steps, "learning_rate": 0.0},
        first_step=first,
        is_exact=True,
        call="step",
        remedy="begin a warm-up above 0, and advance it at each optimizer step, not at each epoch",
        key=f"learning rate {each.optimizer}",
    )


def _too_small_a_rate(state: RunState, each: OptimizerWindows) -> Iterator[Match]:
    """Match an optimizer whose updates have been below the resolution of all its parameters for some time.

    As in GT208, a share s of changed elements makes the ratio of update and parameter at least resolution * sqrt(s).
    """
    read, tree = state.groups.optimizers if state.groups is not None else (), state.tree
    groups = read[each.optimizer] if each.optimizer < len(read) else ()
    rates = [group.learning_rate for group in groups if isinstance(group.learning_rate, float)]
    if not rates or len(rates) < len(groups) or not max(rates) > 0 or each.optimizer >= len(state.optimizers):
        return
    since, trained, largest = 0, 0, 0.0
    for index in state.optimizers[each.optimizer].parameters:
        if tree.states[index : index + 1] != ParameterState.TRAINED.value:
            continue
        resolution, ratios = _RESOLUTION.get(tree.parameters[index].dtype.removeprefix("torch.")), tree.ratios.of(index)
        if resolution is None:
            return
        first = _small_since(ratios, state.falling_rates.get(each.optimizer), resolution * _CHANGED**0.5)
        if first is None:
            return
        since, trained, largest = max(since, first), trained + 1, max(largest, ratios.values[-1])
    last = last_step(state, each)
    if not trained or last - since < max(_MIN_STEPS, _OF_RUN * last):
        return
    yield Match(
        f"the learning rate of {optimizer_name(state, each.optimizer)} is {max(rates):.2g}, too small to change a parameter: "
        f"since step {since:,} at the latest the updates are below the resolution of the numbers",
        {"learning_rate": max(rates), "newest_update_ratio": largest, "since_step": since, "tensors": trained},
        first_step=since,
        call="step",
        remedy="raise the learning rate; if a schedule lowers it, call scheduler.step() as often as the schedule expects",
        key=f"small learning rate {each.optimizer}",
    )


def _small_since(ratios: Series, rate: FallingRate | None, limit: float) -> int | None:
    """Return the step since which updates are below the limit, as measured or as the learning rate has fallen; None if not."""
    lost = 0
    while lost < len(ratios.values) and ratios.values[-1 - lost] < limit:
        lost += 1
    measured = ratios.steps[-lost] if lost >= _MEASUREMENTS else None
    if rate is None or lost == len(ratios.values):
        return measured
    # From the newest update that was large enough, the rate has to fall by as many powers of ten as that was too large.
    step, ratio = ratios.steps[-1 - lost], ratios.values[-1 - lost]
    if not math.isfinite(ratio):
        return measured
    then = max((power for power, first in rate.since.items() if first <= step), default=0)
    # One measurement confirms what the learning rate tells.
    fallen = rate.since.get(then + math.ceil(math.log10(ratio / limit)) + (0 if lost else _MARGIN))
    return min((each for each in (measured, fallen) if each is not None), default=None)


RULE = Rule(
    "GT202",
    Level.ERROR,
    "steps have no effect",
    "an optimizer moves a parameter only by a gradient and a learning rate, and here one of them is missing",
    "call zero_grad() after the step, and give the optimizer a learning rate above 0",
    check,
    explains=frozenset({"GT112", "GT201", "GT208"}),
    needs=needs_optimizer,
)
