"""The functions of the reducer for the script's seldom calls. Pure except for the state that they update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtui.protocol import events as ev
from gradtui.run.state.run_state import RunState


def _state_loaded(state: RunState, event: ev.StateLoaded) -> None:
    state.script_calls.loads[event.number] = event


def _state_aliased(state: RunState, event: ev.StateAliased) -> None:
    state.script_calls.aliased[event.how, event.made_step] = event


def _misplaced(state: RunState, event: ev.OptimizerStateMisplaced) -> None:
    state.script_calls.misplaced[event.optimizer] = event


def _remade(state: RunState, event: ev.OptimizersRemade) -> None:
    state.script_calls.remade[event.type_name] = event


def _misses(state: RunState, event: ev.ScheduleMisses) -> None:
    state.script_calls.missed[event.scheduler, event.optimizer] = event


def _clipping(state: RunState, event: ev.ClippingMeasured) -> None:
    state.script_calls.clipping = event


CHANGES: dict[type[ev.Event], Callable[[RunState, Any], None]] = {
    ev.StateLoaded: _state_loaded,
    ev.StateAliased: _state_aliased,
    ev.OptimizerStateMisplaced: _misplaced,
    ev.OptimizersRemade: _remade,
    ev.ScheduleMisses: _misses,
    ev.ClippingMeasured: _clipping,
}
