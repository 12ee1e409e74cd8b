"""Makes the facts that only the page of a row has, from the state of the run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtui.protocol.vocabulary import ParameterState
from gradtui.run.explanation.derivation import derivation
from gradtui.run.explanation.facts import Explanation, ModuleExplanation, ParameterExplanation
from gradtui.run.explanation.gradient_way import gradient_way
from gradtui.run.explanation.page_facts import (
    BufferDetails,
    Curve,
    Highest,
    ModuleDetails,
    NoNorm,
    Norm,
    ParameterDetails,
    RankNorms,
    Recomputed,
    Toggled,
)
from gradtui.run.explanation.row import (
    backward_in,
    kept_in,
    module_explanation,
    parameter_explanation,
    shard_of,
    shared_memory,
)
from gradtui.run.state.changes.toggles import pending_parameters
from gradtui.run.state.memory.run_memory import above_load
from gradtui.run.state.model_records import model_records
from gradtui.run.state.norms.aggregated_stats import aggregated_stats
from gradtui.run.state.norms.shown_norms import shown_norms
from gradtui.run.state.parts.job import JobState
from gradtui.run.state.ranks.rank_norms import is_shard, norms_on_ranks
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import (
    gets_gradient,
    has_trained,
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
