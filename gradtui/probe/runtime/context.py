"""What a probe is created with, and the clock of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from time import perf_counter_ns

from gradtui.dataclass import dataclass
from gradtui.protocol.keep_limit import DEFAULT_KEEP, KeepLimit
from gradtui.protocol.schedule import Scheduled
from gradtui.system.atomic_file import WriteFile
from gradtui.system.run_files import present_directory
from gradtui.transport.in_process import CommandQueue


class RunClock:
    """Reads a monotonic clock, in nanoseconds and in seconds since the run began."""

    def __init__(self) -> None:
        self._origin = perf_counter_ns()

    def count_from(self, origin: int) -> None:
        """Set the start of the run, in nanoseconds of `perf_counter_ns`: a run may begin before its probe is created."""
        self._origin = origin

    def now(self) -> int:
        """Return the time in nanoseconds. Only differences of such times have a meaning."""
        return perf_counter_ns()

    def at(self) -> float:
        """Return the seconds since the run began, as events carry them."""
        return (perf_counter_ns() - self._origin) / 1e9


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """What the user asks of a run."""

    commands: CommandQueue
    """The commands that the user submits while the script trains."""
    budget: float = 0.01
    """The share of a step's time that measurements may take."""
    stop_after: int | None = None
    """The number of steps after which the probe ends the script; None for no end."""
    schedule: Sequence[Scheduled] = ()
    """Commands to apply at given steps, before those that the user submits there."""
    awaited: Sequence[str] = ()
    """Selections: the end of the run and the schedule are put off until the models have what they name."""
    awaits_times: bool = False
    """The end of the run is put off until steps and modules were timed, and the last step is recorded."""
    ranks_agree: bool = False
    """All ranks of the job have this schedule."""
    return_at_nan: int = 0
    """How often the run returns to a finite state by itself where NaN or Inf has spread."""
    return_at_spike: int = 0
    """The same where the loss or the gradient norm has a spike."""
    write_file: WriteFile | None = None
    """Writes the files that the user requests, and reports; None if this run has no directory for files."""
    directory: str = field(default_factory=present_directory)
    """Where the relative paths of files begin that the user requests: the present directory, unless the run began earlier."""
    keep: KeepLimit = DEFAULT_KEEP
    """How much host memory kept states may take."""
    since: int | None = None
    """When the first phase began, in nanoseconds of `perf_counter_ns`; None for now."""
