"""What only the page of a row has beside its explanation: where each number comes from, and what it was before. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from gradtui.protocol.events import OptimizerStateRead
from gradtui.protocol.vocabulary import BufferInfo, GradientStats, GradMode, ModuleInfo, ParameterInfo, ParameterState
from gradtui.run.explanation.facts import Backward, Kept, ModuleExplanation, ParameterExplanation, Shard
from gradtui.run.explanation.gradient_path import FollowedGradient, followed_gradient
from gradtui.run.explanation.rank_norms import RankNorms, rank_norms
from gradtui.run.explanation.row import backward_in, kept_in, module_explanation, parameter_explanation, shard_of
from gradtui.run.explanation.same_storage import SameStorage, same_storage
from gradtui.run.explanation.what_if import WhatIf, what_if
from gradtui.run.state.aggregated_stats import AggregatedStats, aggregated_stats
from gradtui.run.state.findings import Finding
from gradtui.run.state.forecast import gradient_bytes
from gradtui.run.state.model_records import model_records
from gradtui.run.state.rank_norms import is_shard
from gradtui.run.state.rows import buffer_at, findings_at
from gradtui.run.state.run_memory import above_load
from gradtui.run.state.run_state import ModelRecord, RunState
from gradtui.run.state.selectors import (
    SubtreeTotals,
    has_trained,
    recomputed_bytes,
    subtree,
    toggles_of,
    total_norm_at,
    totals,
)
from gradtui.run.state.series import joint_norm
from gradtui.run.state.shown_norms import shown_norms
from gradtui.run.state.toggles import pending_parameters

POINTS = 32
_CELLS = 100_000
"""The maximum number of norms joined for one curve: only `CurvesPanel` shows a subtree with more parameters."""
_NEVER_RAN = (GradMode.NOT_RUN.value, GradMode.UNKNOWN.value)
_ORPHAN = ParameterState.ORPHAN.value


@dataclass(frozen=True)
class Figures:
    """Statistics of the newest sampled gradients of a row."""

    stats: GradientStats | AggregatedStats
    steps: tuple[int, int]
    """The first and the last step in which they were sampled."""
    tensors: int = 1
    ratio_tensors: int = 1
    """How many tensors the update ratio is of."""
    of: int | None = None
    """How many train; None for a single parameter."""


class NoNorm(Enum):
    """Why there is no gradient norm."""

    NO_BACKWARD = "no backward was seen"
    NO_OPTIMIZER = "norms are read of the parameters that an optimizer has"
    NO_GRADIENT = "there was no gradient in the last measured step"


@dataclass(frozen=True)
class Norm:
    """The newest gradient norm of a row."""

    value: float
    step: int | None
    total: float | None
    """The norm of all gradients in that step."""
    is_part: bool
    """It is that of the part which this rank has: a lower bound of the whole."""


@dataclass(frozen=True)
class Curve:
    """The newest values of a measurement of a row, at most `POINTS`."""

    steps: tuple[int, ...]
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class Details:
    """What the page of any row has."""

    shard: Shard | None
    findings: tuple[Finding, ...]
    gradient_path: FollowedGradient | None
    backward: Backward | None
    """How far backward runs in the module, or in that of the parameter."""
    kept: Kept | None
    """What autograd keeps in that module."""
    is_kept_for_own: bool
    """A parameter in that module gets a gradient."""
    state_read: OptimizerStateRead | None
    """The optimizer state of the row, if it was read."""
    norm: Norm | NoNorm
    norms: Curve
    figures: Figures | None
    change: WhatIf | None
    pending: tuple[bool, ...]
    """What a command that waits does to parameters of the row: True unfreezes one."""
    toggles: tuple[tuple[int, str], ...]
    """The step and the answer of each command that has changed parameters of it, the newest first."""


@dataclass(frozen=True)
class ParameterDetails(Details):
    """What the page of a parameter has."""

    row: ParameterExplanation
    info: ParameterInfo
    module: ModuleInfo
    """The module that has it."""
    gradient_bytes: int
    storage: SameStorage | None
    optimizers: int
    """How many the run has."""
    steps: int
    """Steps that the run has made."""
    ranks: RankNorms | None
    ratios: Curve


@dataclass(frozen=True)
class ModuleDetails(Details):
    """What the page of a module has."""

    row: ModuleExplanation
    info: ModuleInfo
    totals: SubtreeTotals
    states: tuple[tuple[ParameterState, int], ...]
    """The states in it with their numbers of tensors, the most frequent first."""
    ran: tuple[str, bool] | None
    """The letter of its grad mode, and whether it ran in training mode; None if unknown."""
    recomputed: tuple[int | None, int, int] | None
    """Bytes that backward computes again, None if unknown; bytes of inputs that are kept for that; the step."""
    highest: tuple[int, bool, int] | None
    """Bytes held in all while it ran, whether that is the peak of the step, and the step."""
    all_models: Figures | None
    """Of the root of one of several models: the figures of all."""
    micro_norms: tuple[int, tuple[float, ...]] | None
    """Of a root, while micro-steps are followed: the step, and the norm after each."""
    records: tuple[ModelRecord, ...]
    """Of a root: what is known of the model, then of those that are gone, the newest first."""
    is_listed: bool
    """Whether the first of `records` is of this model."""


@dataclass(frozen=True)
class BufferDetails:
    """What the page of a buffer has."""

    info: BufferInfo
    module: ModuleInfo
    """The module that has it."""


def details(state: RunState, row: int) -> Details | BufferDetails:
    """Return every fact about a row of the tree (see `run.state.rows`)."""
    buffer = buffer_at(state.tree, row)
    if buffer is not None:
        return BufferDetails(buffer, state.tree.modules[buffer.module])
    return _module(state, row) if row >= 0 else _parameter(state, ~row)


def _parameter(state: RunState, index: int) -> ParameterDetails:
    tree, row = state.tree, parameter_explanation(state, index)
    info, (step, stats) = tree.parameters[index], tree.gradient_figures.get(index, (0, None))
    curve = tree.ratios.of(index)
    return ParameterDetails(
        **_common(state, row, info.module, [info]),
        figures=Figures(stats, (step, step)) if stats is not None else None,
        row=row,
        info=info,
        module=tree.modules[info.module],
        gradient_bytes=gradient_bytes(info),
        storage=same_storage(tree, index, state.optimizers),
        optimizers=len(state.optimizers),
        steps=state.step,
        ranks=rank_norms(state.job, index),
        ratios=Curve(tuple(curve.steps[-POINTS:]), tuple(curve.values[-POINTS:])),
    )


def _module(state: RunState, index: int) -> ModuleDetails:
    tree, row = state.tree, module_explanation(state, index)
    info, flow, where, step = tree.modules[index], tree.gradient_flow, row.parameters, state.step_profile
    again, height = recomputed_bytes(tree, index), step.highest[index] if step is not None else None
    is_root, mode = info.parent < 0, flow.grad_modes[index] if flow is not None else ""
    records, is_listed = _records(state, index)
    return ModuleDetails(
        **_common(state, row, index, tree.parameters[where.start : where.stop]),
        figures=joint_figures(state, where),
        row=row,
        info=info,
        totals=totals(tree, info),
        states=tuple(
            (ParameterState(letter), n) for letter, n in Counter(tree.states[where.start : where.stop]).most_common()
        ),
        ran=(mode, flow.training[index] in "1h") if flow is not None and mode not in _NEVER_RAN else None,
        recomputed=(*again, tree.saved.step) if again is not None and tree.saved is not None else None,
        highest=(above_load(state, height), height == step.peak, step.step)
        if step is not None and height is not None
        else None,
        all_models=joint_figures(state, range(len(tree.parameters))) if is_root and len(tree.models) > 1 else None,
        micro_norms=_micro_norms(state) if is_root else None,
        records=records,
        is_listed=is_listed,
    )


def _common(
    state: RunState, row: ParameterExplanation | ModuleExplanation, module: int, infos: Sequence[ParameterInfo]
) -> dict[str, Any]:
    """Return the fields that both kinds of rows have."""
    tree, parameters, waiting = state.tree, row.parameters, pending_parameters(state)
    within, known = subtree(tree.modules[module]), row if isinstance(row, ModuleExplanation) else None
    return {
        "shard": shard_of(infos),
        "findings": tuple(findings_at(state, row.row)),
        "gradient_path": followed_gradient(state, row.path),
        "backward": known.backward if known is not None else backward_in(tree, module),
        "kept": known.kept if known is not None else kept_in(tree, module),
        "is_kept_for_own": any(
            tree.trainable[i] == "1" and tree.states[i] != ParameterState.UNREACHED.value for i in within
        ),
        "state_read": tree.optimizer_state.get(row.path) if state.optimizers else None,
        "norm": _norm(state, parameters),
        "norms": _norms(state, parameters),
        "change": what_if(state, row.path, parameters),
        "pending": tuple(wish for index, wish in waiting.items() if index in parameters),
        "toggles": tuple((each.step, each.text) for each in toggles_of(state, parameters)),
    }


def joint_figures(state: RunState, parameters: range) -> Figures | None:
    """Return the statistics of the gradients of several parameters together; None if none was sampled."""
    joint = aggregated_stats(state.tree, parameters)
    if joint is None:
        return None
    return Figures(joint, (joint.first_step, joint.last_step), joint.tensors, joint.ratio_tensors, joint.of)


def _norm(state: RunState, parameters: range) -> Norm | NoNorm:
    shown, tree = shown_norms(state), state.tree
    norm = joint_norm(shown.norms[parameters.start : parameters.stop]) if shown.norms is not None else None
    if norm is None:
        if not has_trained(state):
            return NoNorm.NO_BACKWARD
        is_orphan = all(tree.states[index] == _ORPHAN for index in parameters)
        return NoNorm.NO_OPTIMIZER if is_orphan else NoNorm.NO_GRADIENT
    is_part = shown.is_part and any(is_shard(tree.parameters[index]) for index in parameters)
    return Norm(norm, shown.step, None if is_part else total_norm_at(state, shown.step), is_part)


def _norms(state: RunState, parameters: range) -> Curve:
    history = shown_norms(state).history
    if len(parameters) * POINTS > _CELLS:
        return Curve((), ())
    values = (joint_norm(row[parameters.start : parameters.stop]) for row in history.rows[-POINTS:])
    return Curve(tuple(history.steps[-POINTS:]), tuple(values))


def _micro_norms(state: RunState) -> tuple[int, tuple[float, ...]] | None:
    step, norms = state.micro_norms.last()
    return (step, tuple(norms)) if state.micro_norms.on else None


def _records(state: RunState, index: int) -> tuple[tuple[ModelRecord, ...], bool]:
    number = next((model.number for model in state.tree.models if model.root == index), None)
    if number is None:
        return (), False
    records = model_records(state)
    own = [record for record in records if record.current and record.number == number and record.regimes][:1]
    return (*own, *(record for record in reversed(records) if not record.current)), bool(own)
