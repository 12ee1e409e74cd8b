"""Carry measurements over to a new list of models, for the modules and parameters that are in both lists. Pure.

`ModelsFound` has the index of each module and parameter in the earlier list. Everything that a `TreeState` holds by index moves
to the new index. New modules and parameters are unknown until they are measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from gradtui.protocol.events import (
    GradientFlowMeasured,
    ModelsFound,
    ModuleTimesMeasured,
    SavedBytesMeasured,
    StepMemoryProfiled,
)
from gradtui.protocol.vocabulary import GradMode, OptimizerInfo, Reach, StateReason
from gradtui.run.state.model_records import known_record
from gradtui.run.state.ranks.rank_norms import is_shard
from gradtui.run.state.run_state import RunState
from gradtui.run.state.series import RowHistory
from gradtui.run.state.tree_state import TreeState, Turn
from gradtui.run.text.frontier import record_sentence

RECORDS_KEPT = 64

T = TypeVar("T")


def relisted(before: TreeState, event: ModelsFound) -> TreeState:
    """Return the state for the new list of models, without changing `before`."""
    tree = TreeState(event.models, event.modules, event.parameters, event.buffers, version=before.version + 1)
    tree.listing, tree.compiled = event.listing, frozenset(event.compiled)
    tree.is_sharded = any(map(is_shard, event.parameters))
    unknown = "-" * len(event.parameters)
    tree.states, tree.trainable = unknown, unknown
    if not is_continued(event):
        return tree
    mapping = _IndexMapping(before, event)
    tree.states = "".join(mapping.parameters(before.states, "-"))
    tree.trainable = "".join(mapping.parameters(before.trainable, "-"))
    tree.reasons = "".join(mapping.parameters(before.reasons, StateReason.NONE.value)) if before.reasons else ""
    tree.frozen_after = mapping.by_parameter(before.frozen_after)
    tree.switches = mapping.by_parameter(before.switches)
    if before.norms is not None:
        tree.norms, tree.norms_step = tuple(mapping.parameters(before.norms, None)), before.norms_step
    if before.norm_steps is not None:
        tree.norm_steps = tuple(mapping.parameters(before.norm_steps, None))
    for index, (step, figures) in before.gradient_figures.items():
        if index in mapping.new_parameters:
            new = mapping.new_parameters[index]
            tree.gradient_figures[new] = step, replace(figures, parameter=new)
    for index, (step, histogram) in before.histograms.items():
        if index in mapping.new_parameters:
            new = mapping.new_parameters[index]
            tree.histograms[new] = step, replace(histogram, parameter=new)
    tree.ratios = before.ratios.relisted(mapping.new_parameters)
    tree.saved = mapping.saved(before.saved) if before.saved is not None else None
    tree.times = mapping.times(before.times) if before.times is not None else None
    tree.gradient_flow = mapping.gradient_flow(before.gradient_flow) if before.gradient_flow is not None else None
    tree.steps = tuple(mapping.models(before.steps, 0)) if before.steps else ()
    tree.turns = {
        index: Turn(
            mapping.gradient_flow(turn.gradient_flow), mapping.saved(turn.saved) if turn.saved else None, turn.number
        )
        for index, turn in before.turns.items()
    }
    tree.measured, tree.evaluated = before.measured, {**before.evaluated}
    if before.freezes is not None:
        freezes = before.freezes
        tree.freezes = replace(
            freezes,
            frozen=tuple(sorted(mapping.kept_parameters(freezes.frozen))),
            contending=tuple(sorted(mapping.kept_parameters(freezes.contending))),
            holding=tuple(sorted(mapping.kept_modules(freezes.holding))),
            in_force=tuple(
                replace(
                    each,
                    parameters=tuple(sorted(mapping.kept_parameters(each.parameters))),
                    statistics=tuple(sorted(mapping.kept_modules(each.statistics))),
                )
                for each in freezes.in_force
            ),
        )
    tree.frozen_rows = {
        mapping.new_parameters[index]: replace(rows, parameter=mapping.new_parameters[index])
        for index, rows in before.frozen_rows.items()
        if index in mapping.new_parameters
    }
    tree.checkpointed = frozenset(mapping.kept_modules(before.checkpointed))
    return tree


def is_continued(event: ModelsFound) -> bool:
    """Return whether the new list contains anything of the earlier one."""
    return any(former >= 0 for former in (*event.former_modules, *event.former_parameters))


def relisted_history(before: RowHistory, event: ModelsFound) -> RowHistory:
    """Return the norms of the parameters over steps, by their new indexes."""
    history = RowHistory()
    if is_continued(event):
        for step, row in zip(before.steps, before.rows):
            history.append(step, tuple(row[former] if former >= 0 else None for former in event.former_parameters))
    return history


def relisted_optimizer(before: OptimizerInfo, new_parameters: Mapping[int, int]) -> OptimizerInfo:
    """Return the optimizer with the new indexes of its parameters; those no longer listed count as unknown."""
    owned = [(index, number) for number, index in enumerate(before.parameters) if index in new_parameters]
    groups = tuple(before.group_of[number] for _, number in owned) if before.group_of else ()
    return replace(
        before,
        parameters=tuple(new_parameters[index] for index, _ in owned),
        unknown_parameters=before.unknown_parameters + len(before.parameters) - len(owned),
        group_of=groups,
    )


def relisted_trace(before: TreeState, traced: StepMemoryProfiled, event: ModelsFound) -> StepMemoryProfiled | None:
    """Return the step whose memory was profiled with new indexes; None unless all of its modules are still listed."""
    mapping = _IndexMapping(before, event)
    modules = {traced.peak_module, *(holding.module for holding in traced.holdings)} - {-1}
    if not modules <= mapping.new_modules.keys():
        return None
    holdings = [replace(each, module=mapping.new_modules.get(each.module, -1)) for each in traced.holdings]
    return replace(
        traced,
        peak_module=mapping.new_modules.get(traced.peak_module, -1),
        holdings=tuple(holdings),
        highest=tuple(mapping.modules(traced.highest, None)),
        at_peak=tuple(mapping.modules(traced.at_peak, 0)) if traced.at_peak else (),
    )


class _IndexMapping:
    """Moves values aligned with the old list to the indexes of the new one."""

    def __init__(self, before: TreeState, event: ModelsFound) -> None:
        self._former_modules, self._former_parameters = event.former_modules, event.former_parameters
        self.new_modules = {former: index for index, former in enumerate(event.former_modules) if former >= 0}
        self.new_parameters = {former: index for index, former in enumerate(event.former_parameters) if former >= 0}
        old = {model.number: index for index, model in enumerate(before.models)}
        self._former_models = [old.get(model.number, -1) for model in event.models]

    def modules(self, values: Sequence[T], unknown: T) -> list[T]:
        return _moved(values, self._former_modules, unknown)

    def parameters(self, values: Sequence[T], unknown: T) -> list[T]:
        return _moved(values, self._former_parameters, unknown)

    def models(self, values: Sequence[T], unknown: T) -> list[T]:
        return _moved(values, self._former_models, unknown)

    def kept_modules(self, indices: Iterable[int]) -> list[int]:
        return [self.new_modules[index] for index in indices if index in self.new_modules]

    def kept_parameters(self, indices: Iterable[int]) -> list[int]:
        return [self.new_parameters[index] for index in indices if index in self.new_parameters]

    def by_parameter(self, values: Mapping[int, int]) -> dict[int, int]:
        return {self.new_parameters[index]: value for index, value in values.items() if index in self.new_parameters}

    def gradient_flow(self, event: GradientFlowMeasured) -> GradientFlowMeasured:
        return replace(
            event,
            reach="".join(self.modules(event.reach, Reach.NOT_RUN.value)) if event.reach else "",
            grad_modes="".join(self.modules(event.grad_modes, GradMode.NOT_RUN.value)),
            training="".join(self.modules(event.training, "-")),
            called=tuple(self.modules(event.called, -1)) if event.called else (),
            gradients=tuple(self.models(event.gradients, 0)),
            buckets=tuple(self.models(event.buckets, 0)) if event.buckets else (),
            passing=tuple(self.modules(event.passing, None)) if event.passing else (),
        )

    def saved(self, event: SavedBytesMeasured) -> SavedBytesMeasured:
        upstream = [self.new_parameters.get(index, -1) for index in self.modules(event.upstream, -1)]
        return replace(
            event,
            by_module=tuple(self.modules(event.by_module, 0)),
            upstream=tuple(upstream) if event.upstream else (),
            recomputed=tuple(self.modules(event.recomputed, 0)) if event.recomputed else (),
            region_inputs=tuple(self.modules(event.region_inputs, 0)) if event.region_inputs else (),
        )

    def times(self, event: ModuleTimesMeasured) -> ModuleTimesMeasured:
        return replace(
            event,
            forward=tuple(self.modules(event.forward, 0)),
            own_forward=tuple(self.modules(event.own_forward, 0)),
            backward=tuple(self.modules(event.backward, 0)),
            own_backward=tuple(self.modules(event.own_backward, 0)),
        )


def _moved(values: Sequence[T], former: Sequence[int], unknown: T) -> list[T]:
    return [values[index] if 0 <= index < len(values) else unknown for index in former]


def keep_records(state: RunState, event: ModelsFound) -> None:
    """Keep the records of models that are not in the new list, before it replaces the old one."""
    hosts = _hosts(event)
    listed = {model.number for model in event.models}
    for index, model in enumerate(state.tree.models):
        record = known_record(state, index)
        if record.step is not None or record.trainable is not None:
            root = state.tree.modules[model.root]
            inside = range(model.root, model.root + root.subtree_modules)
            host = next((hosts[module] for module in inside if module in hosts), None)
            part_of = host if model.number not in listed else None
            state.models.pop(record.number, None)
            state.models[record.number] = replace(
                record, current=False, part_of=part_of, sentence=record_sentence(state, record)
            )
    for number in [*state.models][:-RECORDS_KEPT]:
        del state.models[number]


def _hosts(event: ModelsFound) -> dict[int, str]:
    """Map the former index of each module to the name of the model that contains it now."""
    hosts: dict[int, str] = {}
    for model in event.models:
        inside = range(model.root, model.root + event.modules[model.root].subtree_modules)
        hosts |= {event.former_modules[index]: model.name for index in inside if index < len(event.former_modules)}
    hosts.pop(-1, None)
    return hosts
