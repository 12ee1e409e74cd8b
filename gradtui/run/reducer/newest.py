"""The events of which the state keeps the newest as it is, and where. Pure except for the state that it updates."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from gradtui.protocol import events as ev
from gradtui.run.state.run_state import RunState

FIELDS: dict[type[ev.Event], str] = {
    ev.AveragedCopyCompared: "evidence.averaged[copy]",
    ev.AxesMixed: "evidence.mixed_axes",
    ev.CallOrderMeasured: "calls",
    ev.CheckpointAlive: "checkpoint",
    ev.ClippingMeasured: "script_calls.clipping",
    ev.FlagsFound: "evidence.flags",
    ev.GraphHolderFound: "evidence.graph_holder",
    ev.GraphsAlive: "graphs",
    ev.GraphRetained: "evidence.retained_graph",
    ev.GroupsRefused: "resume.refused[optimizer, step]",
    ev.KeptTensorsFound: "evidence.kept_tensors",
    ev.UnfitLossInputs: "evidence.unfit_loss_inputs",
    ev.OperationsCounted: "counted",
    ev.OptimizerStateMisplaced: "script_calls.misplaced[optimizer]",
    ev.OptimizerStateUnused: "unused_state",
    ev.OptimizersRemade: "script_calls.remade[type_name]",
    ev.OwnForwardWrites: "evidence.own_writes",
    ev.ProcessGroupFound: "process_group",
    ev.RateIsFactor: "script_calls.squared[optimizer]",
    ev.RecomputationDiffers: "evidence.recomputation",
    ev.RowsMasked: "evidence.masked_rows[parameter]",
    ev.RunLengthFound: "throughput.length",
    ev.RunResumed: "resume.resumed[optimizer]",
    ev.SamplesMeasured: "throughput.samples",
    ev.ScheduleMisses: "script_calls.missed[scheduler, optimizer]",
    ev.ScheduleOver: "script_calls.over[scheduler, optimizer]",
    ev.StateAliased: "script_calls.aliased[how, made_step]",
    ev.StateLoaded: "script_calls.loads[number]",
    ev.StepTimesMeasured: "step_times",
    ev.UnregisteredTensorsFound: "evidence.unregistered_tensors",
    ev.ZeroDerivativesFound: "evidence.zero_derivatives",
}
"""By event: a field of `RunState` or of a part of it. In brackets: the fields of the event by whose values it keeps several."""


def _keeps(place: str) -> Callable[[RunState, Any], None]:
    path, _, keys = place.rstrip("]").partition("[")
    if keys:
        kept_in, key_of = attrgetter(path), attrgetter(*keys.split(", "))
        return lambda state, event: kept_in(state).__setitem__(key_of(event), event)
    part, _, name = path.rpartition(".")
    owner: Callable[[RunState], Any] = attrgetter(part) if part else lambda state: state
    return lambda state, event: setattr(owner(state), name, event)


CHANGES = {event: _keeps(place) for event, place in FIELDS.items()}
