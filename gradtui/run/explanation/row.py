"""Makes the explanation of a row from the state of the run. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from gradtui.protocol.vocabulary import PROBLEM_STATES, OptimizerInfo, ParameterInfo, ParameterState, Reach, StateReason
from gradtui.run.explanation.facts import (
    NO_CAUSE,
    Backward,
    Cause,
    Explanation,
    Holding,
    Kept,
    ModuleExplanation,
    Moves,
    Owner,
    ParameterExplanation,
    Passing,
    RankDifference,
    RowState,
    Shard,
    SharedMemory,
    TimeShare,
)
from gradtui.run.state.backward.barriers import barriers_of
from gradtui.run.state.backward.frontier import Frontier, barriers_before, frontier, modules_of, within
from gradtui.run.state.forecasts.forecast import gradient_bytes
from gradtui.run.state.freshness import is_stale, stale_norm_step, stale_ratio_steps
from gradtui.run.state.model_records import is_evaluated_only
from gradtui.run.state.norms.aggregated_stats import aggregated_stats
from gradtui.run.state.norms.update_ratios import is_far_from_usual
from gradtui.run.state.optimizers.param_groups import settings_of
from gradtui.run.state.parts.job import NormRange
from gradtui.run.state.ranks.rank_norms import is_shard
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import (
    MAX_JOINED,
    kept_for,
    measured_step,
    model_of,
    optimizers_of,
    row_parameters,
    saved_bytes,
    state_of,
    toggles_of,
)
from gradtui.run.state.time.module_times import all_modules_seconds, are_times_old, module_time
from gradtui.run.state.tree_state import TreeState

_EMPTY = (ParameterState.UNREACHED.value, ParameterState.CUT.value)
_PROBLEMS = tuple(kind for kind in ParameterState if kind in PROBLEM_STATES)
MAX_NAMED = 256
"""Maximum number of modules that an explanation names, so that it does not grow with the model."""


def explanation(state: RunState, row: int, line: Frontier | None = None) -> Explanation:
    """Return what happens to the parameter or module of a row of the tree (see `tree_rows`), and why.

    `line` is the frontier in all models, if the caller has it.
    """
    return module_explanation(state, row, line) if row >= 0 else parameter_explanation(state, ~row)


def parameter_explanation(state: RunState, index: int) -> ParameterExplanation:
    """Return what happens to a parameter, and why."""
    tree, own = state.tree, range(index, index + 1)
    path, flag = tree.parameters[index].path, tree.trainable[index]
    return ParameterExplanation(
        ~index, path, path, own, row_state(state, own), _moves(state, ~index, own), stale_norm_step(state, own),
        _difference(state, own), _shard(tree, own),
        kind=state_of(tree, index),
        trainable=None if flag == "-" else flag == "1",
        cause=cause_of(state, index),
        is_contended=tree.freezes is not None and index in tree.freezes.contending,
        rows=tree.frozen_rows.get(index),
        way=_way(tree, path),
        owners=tuple(_owner(state, optimizer, index) for optimizer in optimizers_of(state, index)),
    )  # fmt: skip


def module_explanation(state: RunState, index: int, line: Frontier | None = None) -> ModuleExplanation:
    """Return what happens in a module, and why."""
    tree, module = state.tree, state.tree.modules[index]
    where = row_parameters(tree, index)
    problems = ((kind, tree.states.count(kind.value, where.start, where.stop)) for kind in _PROBLEMS)
    return ModuleExplanation(
        index, module.path, module.path or module.name, where, row_state(state, where), _moves(state, index, where),
        stale_norm_step(state, where), _difference(state, where), _shard(tree, where),
        problems=tuple((kind, count) for kind, count in problems if count),
        holding=_holding(tree, index),
        backward=backward_in(tree, index, line),
        passing=passing_through(state, index),
        kept=kept_in(tree, index),
        time=time_share(state, index),
    )  # fmt: skip


def row_state(state: RunState, parameters: range) -> RowState:
    """Return the states of the parameters of a row."""
    tree, count = state.tree, len(parameters)
    letters = tree.states[parameters.start : parameters.stop]
    if not letters or letters.strip(letters[0]):
        return RowState(count, tree.trainable.count("1", parameters.start, parameters.stop))
    kind, flag = ParameterState(letters[0]), tree.trainable[parameters.start] == "1"
    changed = next((each for each in toggles_of(state, parameters) if each.changed), None)
    # The script may have changed it since the last command did.
    is_known = changed is not None and kind is not ParameterState.UNKNOWN
    since = (
        changed.step if changed is not None and is_known and all(c.trainable == flag for c in changed.changed) else None
    )
    is_partly = count == 1 and kind is ParameterState.TRAINED
    return RowState(count, kind=kind, since=since, rows=tree.frozen_rows.get(parameters.start) if is_partly else None)


def cause_of(state: RunState, index: int) -> Cause:
    """Return why a parameter is in its state, as far as known."""
    tree, kind = state.tree, state_of(state.tree, index)
    module = tree.parameters[index].module
    if kind is ParameterState.UNKNOWN and is_evaluated_only(state, model_of(tree, module)):
        return Cause(evaluated_only=True)
    if kind is ParameterState.SKIPPED:
        return Cause(skipped_steps=state.skipped_steps)
    cause = state_cause(tree, index)
    if kind is ParameterState.FLOW_THROUGH and cause == NO_CAUSE:
        upstream = kept_for(tree, module)
        return Cause(passes_on=tree.parameters[upstream].path) if upstream is not None else cause
    return cause


def state_cause(tree: TreeState, index: int) -> Cause:
    """Return the same as far as the last sampled step tells: what the probe knows, or why no gradient comes."""
    reason = StateReason(tree.reasons[index]) if index < len(tree.reasons) else StateReason.NONE
    if reason is StateReason.NONE and tree.states[index] in _EMPTY:
        cause = never_of(tree, tree.parameters[index].module)
        has_had = index in tree.gradient_figures or (tree.norms is not None and tree.norms[index] is not None)
        if has_had and cause.reach == Reach.NOT_RUN.value and tree.gradient_flow is not None:
            return replace(cause, step=tree.gradient_flow.step)
        return cause
    return Cause(reason)


def never_of(tree: TreeState, module: int) -> Cause:
    """Return why the gradient never reaches a parameter of a module, as far as known."""
    letter = tree.gradient_flow.reach[module] if tree.gradient_flow is not None and tree.gradient_flow.reach else ""
    is_barred = letter == Reach.NOT_ENTERED.value
    return Cause(reach=letter, barriers=barriers_of(tree, (module,)) if is_barred else None)


def _moves(state: RunState, row: int, where: range) -> Moves | None:
    tree = state.tree
    if row < 0:
        curve = tree.ratios.of(~row)
        if not len(curve) or state_of(tree, ~row) is not ParameterState.TRAINED:
            return None
        step = curve.steps[-1]
        ratio, old = curve.values[-1], (step, step) if is_stale(state, step) else None
    else:
        joint = aggregated_stats(tree, where) if len(where) <= MAX_JOINED else None
        if joint is None or joint.update_ratio is None:
            return None
        ratio, old = joint.update_ratio, stale_ratio_steps(state, where)
    return Moves(ratio, old, is_far_from_usual(tree, where, ratio))


def _difference(state: RunState, where: range) -> RankDifference | None:
    job = state.job
    unlike = [index for index in job.unlike_norms if index in where] if job is not None else []
    if not unlike or job is None:
        return None
    worst = max(unlike, key=lambda index: _apart(job.unlike_norms[index]))
    path = state.tree.parameters[worst].path if len(where) > 1 else ""
    return RankDifference(path, job.unlike_norms[worst], len(job.ranks))


def _apart(found: NormRange) -> tuple[bool, bool, float]:
    """Return how far norms are apart, to compare it."""
    is_finite = math.isfinite(found.high)
    return bool(found.missing), not is_finite, -found.low / found.high if is_finite and found.high else 0.0


def _shard(tree: TreeState, where: range) -> Shard | None:
    return shard_of(tree.parameters[where.start : where.stop]) if tree.is_sharded and len(where) <= MAX_JOINED else None


def shard_of(infos: Sequence[ParameterInfo]) -> Shard | None:
    """Return how much of parameters this process holds; None if it holds all of them."""
    if not any(map(is_shard, infos)):
        return None
    held = sum(info.count if info.local_count is None else info.local_count for info in infos)
    whole, size = sum(info.count for info in infos), sum(info.bytes for info in infos)
    return Shard(held, whole, sum(map(gradient_bytes, infos)), size)


def shared_memory(tree: TreeState, index: int, optimizers: Sequence[OptimizerInfo]) -> SharedMemory | None:
    """Return the parameters over the memory of this one; None if there is no other."""
    info = tree.parameters[index]
    if not info.same_storage:
        return None
    paths = (info.path, *info.same_storage)
    owned = {each for optimizer in optimizers for each in optimizer.parameters}
    stepped = sum(tree.parameters[each].path in paths and tree.trainable[each] == "1" for each in owned)
    ends = [model.root + tree.modules[model.root].subtree_modules for model in tree.models]
    models = {bisect_right(ends, each.module) for each in tree.parameters if each.path in paths}
    return SharedMemory(paths, stepped, len(models) > 1)


def _way(tree: TreeState, path: str) -> tuple[str, ...]:
    found = tree.gradient_paths.get(path)
    if found is None or not found.gradient.found:
        return ()
    passed = (hop.module for hop in found.gradient.hops if hop.module >= 0 and hop.module != found.module)
    return tuple(dict.fromkeys(name for module in passed if (name := tree.modules[module].path)))


def _owner(state: RunState, number: int, parameter: int) -> Owner:
    info, counts = state.optimizers[number], state.optimizer_steps
    is_known = len(info.group_of) == len(info.parameters)
    group = info.group_of[info.parameters.index(parameter)] if is_known else 0
    settings = settings_of(state, (number, group))
    made = counts[number] if number < len(counts) else 0
    return Owner(
        number, info.type_name, info.groups, group if is_known else None, settings,
        since=state.groups_since.get((number, group)) if settings is not None else None,
        steps=(made, state.step) if made and sum(count > 0 for count in counts) > 1 else None,
    )  # fmt: skip


def _holding(tree: TreeState, index: int) -> Holding | None:
    held = tree.freezes.holding if tree.freezes is not None else ()
    inside = [each for each in held if index <= each < index + tree.modules[index].subtree_modules]
    kinds = tuple(dict.fromkeys(tree.modules[each].type_name for each in inside))
    return Holding(inside == [index], len(inside), kinds) if inside else None


def backward_in(tree: TreeState, index: int, line: Frontier | None = None) -> Backward | None:
    """Return how far backward runs in a module; None while unknown. `line` is as in `explanation`."""
    flow = tree.gradient_flow
    if flow is None or not flow.reach:
        return None
    letter, step = flow.reach[index], measured_step(tree, index)
    if letter == Reach.NOT_ENTERED.value:
        return Backward(letter, step, barriers=barriers_of(tree, (index,)))
    if letter not in (Reach.THROUGH.value, Reach.ENDS.value):
        return Backward(letter, step)
    line = line or frontier(tree) or Frontier()
    if index in line.stops:
        model = next(at for at in reversed(range(len(tree.models))) if tree.models[at].root <= index)
        return Backward(letter, step, True, barriers_before(tree, line, modules_of(tree, model)))
    never = within(line.never_entered, index + 1, index + tree.modules[index].subtree_modules)
    return Backward(
        letter, step, never=tuple(tree.modules[each].path for each in never[:MAX_NAMED]), never_count=len(never)
    )


def passing_through(state: RunState, index: int) -> Passing | None:
    """Return the gradient that passes through a frozen module; None if it was not read."""
    flow = state.tree.gradient_flow
    norm = flow.passing[index] if flow is not None and flow.passing else None
    if norm is None:
        return None
    step = measured_step(state.tree, index)
    return Passing(norm, step, is_stale(state, step))


def kept_in(tree: TreeState, index: int) -> Kept | None:
    """Return what autograd keeps for backward in a module; None until it was measured."""
    saved, whole = tree.saved, saved_bytes(tree, index)
    if saved is None or whole is None:
        return None
    step, upstream = measured_step(tree, index), kept_for(tree, index) if whole else None
    share = whole / saved.total if saved.total > 0 and step == saved.step else None
    return Kept(
        whole, saved.by_module[index], step, share, tree.parameters[upstream].path if upstream is not None else ""
    )


def time_share(state: RunState, index: int) -> TimeShare | None:
    """Return how much of a step a module takes; None if it is unknown."""
    time, times = module_time(state.tree, index), state.tree.times
    if time is None or times is None:
        return None
    return TimeShare(time, all_modules_seconds(state.tree), times.step if are_times_old(state) else None)
