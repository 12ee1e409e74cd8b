"""Makes the facts that only the page of a row has, from the state of the run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtui.protocol.commands import TraceGradient
from gradtui.protocol.vocabulary import ParameterState
from gradtui.run.explanation.facts import Explanation, ModuleExplanation, ParameterExplanation
from gradtui.run.explanation.page_facts import (
    AwaitedWay,
    BufferDetails,
    Curve,
    Derivation,
    GradientWay,
    Highest,
    ModuleDetails,
    NoNorm,
    Norm,
    ParameterDetails,
    PassedModule,
    PassedParameter,
    RankNorms,
    Recomputed,
    Toggled,
)
from gradtui.run.explanation.row import (
    backward_in,
    kept_in,
    module_explanation,
    never_of,
    parameter_explanation,
    shard_of,
    shared_memory,
)
from gradtui.run.state.changes.toggles import pending_parameters, toggle_effect
from gradtui.run.state.forecasts.forecast import RECORDS_NOTHING, Forecast, gradient_bytes, optimizer_rules
from gradtui.run.state.memory.run_memory import above_load
from gradtui.run.state.memory.step_peaks import step_peaks
from gradtui.run.state.model_records import model_records
from gradtui.run.state.norms.aggregated_stats import aggregated_stats
from gradtui.run.state.norms.shown_norms import shown_norms
from gradtui.run.state.parts.job import JobState
from gradtui.run.state.ranks.rank_norms import is_shard, norms_on_ranks
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import (
    gets_gradient,
    has_trained,
    is_classified,
    recomputed_bytes,
    subtree,
    toggles_of,
    total_norm_at,
    totals,
)
from gradtui.run.state.series import joint_norm
from gradtui.run.state.tree.rows import buffer_at, findings_at
from gradtui.run.state.tree_state import TreeState

_POINTS = 32
_CELLS = 100_000
"""The maximum number of norms joined for one curve: only `CurvesPanel` shows a subtree with more parameters."""
_TOGGLES = 8


def details(state: RunState, row: int) -> ParameterDetails | ModuleDetails | BufferDetails:
    """Return all that the page of a row of the tree has (see `run.state.tree.rows`)."""
    buffer = buffer_at(state.tree, row)
    if buffer is not None:
        return BufferDetails(buffer, state.tree.modules[buffer.module])
    if row < 0:
        return parameter_details(state, parameter_explanation(state, ~row))
    return module_details(state, module_explanation(state, row))


def parameter_details(state: RunState, row: ParameterExplanation) -> ParameterDetails:
    """Return all that the page of a parameter has."""
    (index,), tree = row.parameters, state.tree
    info, ratios = tree.parameters[index], tree.ratios.of(index)
    module = info.module
    return ParameterDetails(
        **_common(state, row, module),
        row=row,
        info=info,
        module=tree.modules[module],
        optimizers=len(state.optimizers) if state.optimizers or not state.step else None,
        shared=shared_memory(tree, index, state.optimizers),
        ranks=rank_norms(state.job, index),
        statistics=tree.gradient_figures.get(index),
        ratios=_curve(ratios.steps[-_POINTS:], ratios.values[-_POINTS:]),
        kept=kept_in(tree, module),
        backward=backward_in(tree, module),
    )


def module_details(state: RunState, row: ModuleExplanation) -> ModuleDetails:
    """Return all that the page of a module has."""
    tree, module, where, flow = state.tree, state.tree.modules[row.row], row.parameters, state.tree.gradient_flow
    number = next((model.number for model in tree.models if model.root == row.row), None)
    records = model_records(state) if number is not None else []
    step, norms = state.micro_norms.last()
    is_one_of_several = module.parent < 0 and len(tree.models) > 1
    return ModuleDetails(
        **_common(state, row, row.row),
        row=row,
        info=module,
        states=tree.states[where.start : where.stop],
        mode=(flow.grad_modes[row.row], flow.training[row.row] in "1h") if flow is not None else None,
        micro_steps=(step, tuple(norms)) if state.micro_norms.on and module.parent < 0 else None,
        record=next((each for each in records if each.current and each.number == number), None),
        earlier=tuple(each for each in reversed(records) if not each.current),
        sums=totals(tree, module),
        statistics=aggregated_stats(tree, where),
        of_all=aggregated_stats(tree, range(len(tree.parameters))) if is_one_of_several else None,
        recomputed=_recomputed(tree, row.row),
        highest=_highest(state, row.row),
    )


def _common(state: RunState, row: Explanation, module: int) -> dict[str, Any]:
    where, tree, pending = row.parameters, state.tree, pending_parameters(state)
    toggles = toggles_of(state, where)
    return {
        "findings": tuple(findings_at(state, row.row)),
        "way": gradient_way(state, row.path),
        "derivation": derivation(state, row.path, where),
        "norm": _norm(state, where),
        "norms": _norms(state, where),
        "waiting": tuple(trainable for index, trainable in pending.items() if index in where),
        "keeps_for_own": gets_gradient(tree, subtree(tree.modules[module])),
        "toggles": tuple(Toggled(each.step, each.text) for each in toggles[:_TOGGLES]),
        "earlier_toggles": max(0, len(toggles) - _TOGGLES),
        "shard": shard_of(tree.parameters[where.start : where.stop]),
        "optimizer_state": tree.optimizer_state.get(row.path) if state.optimizers else None,
    }


def _norm(state: RunState, where: range) -> Norm | NoNorm:
    tree, shown = state.tree, shown_norms(state)
    norm = joint_norm(shown.norms[where.start : where.stop]) if shown.norms is not None else None
    if norm is not None:
        is_part = shown.is_part and any(map(is_shard, tree.parameters[where.start : where.stop]))
        return Norm(norm, shown.step, total_norm_at(state, shown.step), is_part)
    if not has_trained(state):
        return NoNorm.NO_BACKWARD
    is_orphan = all(letter == ParameterState.ORPHAN.value for letter in tree.states[where.start : where.stop])
    return NoNorm.NOT_OWNED if is_orphan else NoNorm.NO_GRADIENT


def _norms(state: RunState, where: range) -> Curve | None:
    if len(where) * _POINTS > _CELLS:
        return None
    history = shown_norms(state).history
    values = [joint_norm(row[where.start : where.stop]) for row in history.rows[-_POINTS:]]
    return _curve(history.steps[-_POINTS:], values)


def _curve(steps: Sequence[int], values: Sequence[float | None]) -> Curve | None:
    known = [index for index, value in enumerate(values) if value is not None]
    if len(known) < 2:
        return None
    first, last = known[0], known[-1]
    return Curve(steps[first], steps[last], tuple(values[first : last + 1]))


def _recomputed(tree: TreeState, index: int) -> Recomputed | None:
    found, saved = recomputed_bytes(tree, index), tree.saved
    return Recomputed(*found, saved.step) if found is not None and saved is not None else None


def _highest(state: RunState, index: int) -> Highest | None:
    step = state.step_profile
    height = step.highest[index] if step is not None else None
    if step is None or height is None:
        return None
    return Highest(above_load(state, height), height == step.peak, step.step)


def rank_norms(job: JobState | None, index: int) -> RankNorms | None:
    """Return the gradient norms of a parameter on the ranks of a job; None if this is no job of several ranks."""
    if job is None or len(job.ranks) < 2:
        return None
    infos = [each.parameters[index] for each in job.ranks.values() if index < len(each.parameters)]
    step, at = norms_on_ranks(job, index) or (0, {})
    return RankNorms(
        len(job.ranks), not any(map(is_shard, infos)), job.unlike_norms.get(index), step, tuple(at.items())
    )


def gradient_way(state: RunState, path: str) -> GradientWay | AwaitedWay | None:
    """Return the newest gradient path to a module or parameter; None if no command has requested one."""
    tree, found = state.tree, state.tree.gradient_paths.get(path)
    if found is None:
        asked = any(isinstance(command, TraceGradient) and command.path == path for command in state.pending.values())
        if not asked and path not in tree.followed:
            return None
        return AwaitedWay.PAUSED if state.paused else AwaitedWay.IN_NEXT_STEP
    hops, is_module = (*found.gradient.hops, *found.gradient.onward), found.parameter < 0
    passed = {hop.module for hop in hops} | {found.module}
    passed |= {_block(tree, each) for each in passed}
    within = tree.modules[found.module].subtree_modules if is_module and found.gradient.found else 0
    return GradientWay(
        found,
        {index: _module(tree, index, range(found.module, found.module + within)) for index in passed - {-1}},
        {index: _parameter(state, index) for index in (found.parameter, found.gradient.upstream) if index >= 0},
        trains=is_module and gets_gradient(tree, subtree(tree.modules[found.module])),
        cause=never_of(tree, found.module),
    )


def _module(tree: TreeState, index: int, within: range) -> PassedModule:
    info = tree.modules[index]
    where = range(info.first_parameter, info.first_parameter + info.own_parameters) or subtree(info)
    states = "".join(dict.fromkeys(tree.states[where.start : where.stop]))
    return PassedModule(
        info.path or info.name, info.name, info.type_name, info.parent, states, _block(tree, index), index in within
    )


def _block(tree: TreeState, module: int) -> int:
    found = -1
    while module >= 0:
        if tree.modules[module].name.isdigit():
            found = module
        module = tree.modules[module].parent
    return found


def _parameter(state: RunState, index: int) -> PassedParameter:
    tree, shown = state.tree, shown_norms(state)
    value = joint_norm((shown.norms[index],)) if shown.norms is not None else None
    total = total_norm_at(state, shown.step) if not shown.is_part else None
    norm = Norm(value, shown.step, total, shown.is_part) if value is not None else None
    return PassedParameter(
        tree.parameters[index].path, ParameterState(tree.states[index]), tree.trainable[index] == "1", norm
    )


def derivation(state: RunState, path: str, parameters: range) -> Derivation | None:
    """Return what a toggle of the row with this path and these parameters would change; None if nothing can be said."""
    if state.ended is not None or not parameters or not is_classified(state.tree):
        return None
    effect = toggle_effect(state, path, parameters)
    toggle, change = effect.toggle, effect.forecast
    if toggle is None:
        return None
    if effect.would_fail:
        return Derivation(toggle.trainable, None)
    if change is None or not (change.starts or change.stops):
        return None
    modules, peaks = state.tree.modules, step_peaks(state)
    return Derivation(
        toggle.trainable,
        change,
        _with_gradient(state, change),
        optimizer_rules(state, change),
        tuple((modules[at].path or modules[at].name if at >= 0 else "", size) for at, size in change.largest),
        (peaks.highest[0], peaks.step) if peaks is not None and change.peak is not None else None,
        state.operations,
        is_compiled=state.has_compiled_code or bool(state.tree.compiled),
        takes_turns=len(state.tree.turns) > 1,
    )


def _with_gradient(state: RunState, change: Forecast) -> int | None:
    unreached = ParameterState.UNREACHED.value
    modes = state.tree.gradient_flow.grad_modes if state.tree.gradient_flow is not None else ""
    infos, sign = state.tree.parameters, 1 if change.starts else -1
    get = [index for index in change.stops if state.tree.states[index] != unreached]
    get += [index for index in change.starts if not modes or modes[infos[index].module] not in RECORDS_NOTHING]
    return len(get) if sign * sum(gradient_bytes(infos[index]) for index in get) == change.gradients else None
