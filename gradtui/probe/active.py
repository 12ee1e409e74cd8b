"""Store the probe of this process. torch can be patched by one probe at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradtui.probe.probe import Probe
    from gradtui.state.run_state import RunState


@dataclass(frozen=True)
class Viewer:
    """Receives the events of a probe under the command `gradtui`. Any thread may call its functions."""

    look: Callable[[Callable[[RunState], Any]], Any]
    """Applies a function to the state with all events that have arrived, and returns its result; None if the viewer is busy."""
    dropped: Callable[[], int]
    """Returns the number of events that were dropped because they were not drained in time."""


_active: list[tuple[Probe, Viewer | None]] = []


def active_probe() -> Probe | None:
    """Return the attached probe, None if there is none."""
    return _active[-1][0] if _active else None


def active_viewer() -> Viewer | None:
    """Return the viewer of the attached probe, None if the command `gradtui` has not attached it."""
    return _active[-1][1] if _active else None


def set_active(probe: Probe | None, viewer: Viewer | None = None) -> None:
    """Set the attached probe and its viewer; None for no probe."""
    _active[:] = [(probe, viewer)] if probe is not None else []
