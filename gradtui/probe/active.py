"""The probe of this process, if there is one: torch can be tapped only once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradtui.probe.probe import Probe
    from gradtui.state.run_state import RunState


@dataclass(frozen=True)
class Viewer:
    """Where the events of a probe go under the command `gradtui`. Any thread."""

    look: Callable[[Callable[[RunState], Any]], Any]
    """Returns what a function makes of the state, with all events that have arrived; None where the viewer has no time."""
    dropped: Callable[[], int]
    """Events that were not drained in time."""


_active: list[tuple[Probe, Viewer | None]] = []


def active_probe() -> Probe | None:
    """The attached probe, None if there is none."""
    return _active[-1][0] if _active else None


def active_viewer() -> Viewer | None:
    """The viewer of the attached probe, None if the command `gradtui` has not attached it."""
    return _active[-1][1] if _active else None


def set_active(probe: Probe | None, viewer: Viewer | None = None) -> None:
    """Remember the attached probe, or that there is none any more."""
    _active[:] = [(probe, viewer)] if probe is not None else []
