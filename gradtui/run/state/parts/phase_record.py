"""What a run has measured of one of its phases."""

from __future__ import annotations

from dataclasses import field

from gradtui.dataclass import dataclass
from gradtui.protocol import events as ev
from gradtui.run.state.parts.bounds import Bound
from gradtui.run.state.series import Series


@dataclass
class PhaseRecord:
    """Times and memory of one phase over the whole run."""

    seconds: float = 0.0
    """Host time. On a device: the time that the host took to launch operations and to wait for them."""
    device_seconds: float = 0.0
    """Device time in the `device_steps` steps that were timed on a device."""
    device_steps: int = 0
    count: int = 0
    last: ev.MemoryMeasured | None = None
    peak: int | None = None
    """Highest total of all steps, in bytes."""
    peak_step: int = 0
    """The step of `peak`; 0 before the first one."""
    peak_models: tuple[int, ...] = ()
    """Numbers of the models that had run in the step of the peak; empty where they are unknown."""
    peak_bound: Bound = "exact"
    totals: Series = field(default_factory=Series)
    """Total bytes at the end of the phase, over steps."""
