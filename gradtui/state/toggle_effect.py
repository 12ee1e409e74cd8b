"""What a toggle of a row would change, as far as it can be told from the state of the run. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gradtui.state.forecast import MAX_MODULES, MAX_PARAMETERS, Forecast, forecast, leaves_nothing
from gradtui.state.run_state import RunState
from gradtui.state.toggles import Toggle, pending_parameters, toggle_of


@dataclass(frozen=True)
class ToggleEffect:
    """What becomes of a row."""

    toggle: Toggle | None
    """None while it is unknown whether the row trains."""
    pending: bool | None = None
    """What a command that waits does to a part of the row: True unfreezes it."""
    would_fail: bool = False
    """Nothing would train: `loss.backward()` would fail."""
    forecast: Forecast | None = None
    """None while a command waits, and for more tensors than a redraw may forecast."""


def toggle_effect(state: RunState, path: str, parameters: range) -> ToggleEffect:
    """Return what a toggle of the row with this path and these parameters would change."""
    toggle, waiting = toggle_of(state, path, parameters), pending_parameters(state)
    pending = next((waiting[index] for index in parameters if index in waiting), None) if waiting else None
    if toggle is None or pending is not None:
        return ToggleEffect(toggle, pending)
    if not toggle.trainable and leaves_nothing(state, parameters):
        return ToggleEffect(toggle, would_fail=True)
    if len(parameters) > MAX_PARAMETERS:
        return ToggleEffect(toggle)
    change = forecast(state, toggle.parameters, toggle.trainable, MAX_MODULES, restores=toggle.restores)
    return ToggleEffect(toggle, None, change.would_fail, change)
