"""The functions of the reducer for what only rules read. Pure except for the state that they update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtui.protocol import events as ev
from gradtui.run.state.run_state import RunState


def _own_forward_writes(state: RunState, event: ev.OwnForwardWrites) -> None:
    state.evidence.own_writes = event


def _rows_masked(state: RunState, event: ev.RowsMasked) -> None:
    state.evidence.masked_rows[event.parameter] = event


def _averaged_copy_compared(state: RunState, event: ev.AveragedCopyCompared) -> None:
    state.evidence.averaged[event.copy] = event


def _zero_derivatives_found(state: RunState, event: ev.ZeroDerivativesFound) -> None:
    state.evidence.zero_derivatives = event


def _normalized_twice(state: RunState, event: ev.NormalizedTwice) -> None:
    state.evidence.normalized_twice = event


def _unregistered_tensors_found(state: RunState, event: ev.UnregisteredTensorsFound) -> None:
    state.evidence.unregistered_tensors = event


def _kept_tensors_found(state: RunState, event: ev.KeptTensorsFound) -> None:
    state.evidence.kept_tensors = event


def _graph_holder_found(state: RunState, event: ev.GraphHolderFound) -> None:
    state.evidence.graph_holder = event


def _recomputation_differs(state: RunState, event: ev.RecomputationDiffers) -> None:
    state.evidence.recomputation = event


def _flags_found(state: RunState, event: ev.FlagsFound) -> None:
    state.evidence.flags = event


def _unlisted_tensors_train(state: RunState, event: ev.UnlistedTensorsTrain) -> None:
    state.evidence.unlisted_tensors[event.optimizer] = event.tensors


def _model_copied(state: RunState, event: ev.ModelCopied) -> None:
    state.evidence.copied_models.add(event.model)


CHANGES: dict[type[ev.Event], Callable[[RunState, Any], None]] = {
    ev.OwnForwardWrites: _own_forward_writes,
    ev.RowsMasked: _rows_masked,
    ev.AveragedCopyCompared: _averaged_copy_compared,
    ev.ZeroDerivativesFound: _zero_derivatives_found,
    ev.NormalizedTwice: _normalized_twice,
    ev.UnregisteredTensorsFound: _unregistered_tensors_found,
    ev.KeptTensorsFound: _kept_tensors_found,
    ev.GraphHolderFound: _graph_holder_found,
    ev.RecomputationDiffers: _recomputation_differs,
    ev.FlagsFound: _flags_found,
    ev.UnlistedTensorsTrain: _unlisted_tensors_train,
    ev.ModelCopied: _model_copied,
}
