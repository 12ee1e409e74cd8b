"""The session: a probe and its samplers, which of them watches this process, and the freezes in the script's checkpoints.

`gradtui train.py`, `gradtui.watch` and `gradtui.apply_schedule` create a session. A resumed run keeps its freezes by
`state_dict` and `load_state_dict`, which the script calls on its training thread. Neither ever raises: a script can train on
from a checkpoint whose freezes cannot be restored, so a problem is one line on stderr.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gradtui.dataclass import dataclass
from gradtui.probe import first_use
from gradtui.probe.commands import Saved
from gradtui.probe.hooks import install
from gradtui.probe.probe import Probe
from gradtui.probe.runtime import ProbeOptions
from gradtui.probe.samplers.readings import Readings
from gradtui.protocol.events import Event, PhaseSampled, ProbeFailed
from gradtui.protocol.vocabulary import Phase
from gradtui.system import plugins
from gradtui.system.printable import write_line

if TYPE_CHECKING:
    from gradtui.run.state.run_state import RunState

_VERSION = 1
_waiting: list[Saved] = []
"""The state that was loaded while no probe was attached: at most one."""


@dataclass(frozen=True)
class Viewer:
    """Receives the events of a probe under the command `gradtui`. Any thread may call its functions."""

    look: Callable[[Callable[[RunState], Any]], Any]
    """Applies a function to the state with all events that have arrived, and returns its result; None if the viewer is busy."""
    dropped: Callable[[], int]
    """Returns the number of events that were dropped because they were not drained in time."""


class PhaseSampler:
    """Samples the phase of the training thread: an event at every change would be far too frequent."""

    period_s = 0.125

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._last: Phase | None = None

    def sample(self) -> PhaseSampled | None:
        """Return the current phase as an event, None if it has not changed."""
        now = self._probe.parts.phase()
        if now is self._last:
            return None
        self._last = now
        return PhaseSampled(self._probe.clock.at(), self._probe.counter.steps, now)


class Session:
    """Observes this process from `start` to `stop`.

    Args:
        emit: receives the events.
        options: what the user asks of the run.
        readings: those that have begun before the session; without them it has its own.

    Attributes:
        probe: the probe.
        ledger: the name of the counter of CPU memory.
    """

    def __init__(self, emit: Callable[[Event], None], options: ProbeOptions, readings: Readings | None = None) -> None:
        plugins.load(plugins.RULES, plugins.METRICS)
        self._emit, self._has_begun = emit, readings is not None
        self._readings = readings = readings or Readings(lambda: self.probe.clock.at(), emit, self._failed)
        self.ledger = readings.allocator.name
        self.probe = probe = Probe(emit, readings.allocator, options)
        readings.steps, readings.device_index = lambda: probe.counter.steps, lambda: probe.step_sampler.device_index
        readings.add(PhaseSampler(probe))

    def start(self, viewer: Viewer | None = None) -> None:
        """Install the hooks and start the readings. `viewer` receives the events under the command `gradtui`."""
        set_active(self.probe, viewer)
        install(self.probe)
        if _waiting:
            self.probe.dispatcher.saved_freezes.load(*_waiting.pop())
        if not self._has_begun:
            self._readings.start()

    def stop(self) -> None:
        """Remove the hooks, stop the sampler thread, and emit the remaining events. Never raises an `Exception`."""
        probe = self.probe
        leaving: tuple[tuple[str, Callable[[], object]], ...] = (
            ("probe", lambda: set_active(None)),
            ("sampler", self._readings.stop),
            ("probe", probe.detach),
            # Detaching the probe counts the newest steps.
            ("schedule", lambda: probe.dispatcher.finish(probe.counter.steps)),
        )
        for part, leave in leaving:
            try:
                leave()
            except Exception as error:  # noqa: BLE001 - the script's ending is its own, whatever goes wrong in ours
                self._failed(part, f"{type(error).__name__}: {error}")

    def _failed(self, part: str, error: str) -> None:
        self._emit(ProbeFailed(self.probe.clock.at(), self.probe.counter.steps, part, error, True))


_active: list[tuple[Probe, Viewer | None]] = []


def active_probe() -> Probe | None:
    """Return the attached probe, None if there is none. One that waits for the first use of torch does not wait longer."""
    first_use.begin()
    return _active[-1][0] if _active else None


def active_viewer() -> Viewer | None:
    """Return the viewer of the attached probe, None if the command `gradtui` has not attached it."""
    return _active[-1][1] if _active else None


def set_active(probe: Probe | None, viewer: Viewer | None = None) -> None:
    """Set the attached probe and its viewer; None for no probe."""
    _active[:] = [(probe, viewer)] if probe is not None else []


def state_dict() -> dict[str, Any]:
    """Return what commands have frozen so far, to be saved with the script's own state.

    Returns:
        `{"version": 1, "frozen": [paths of parameters], "holding_statistics": [paths of modules]}`, and if rows are frozen
        `"rows": ["embed.weight 0:32000"]`. The lists hold strings, which JSON and `torch.save` accept. They include freezes
        that were loaded and have not been applied yet. If no probe is attached, they hold what was loaded, so that a run
        without gradtui in between loses nothing.
    """
    probe = active_probe()
    frozen, holding, rows = (
        probe.dispatcher.saved_freezes.saved() if probe is not None else _waiting[0] if _waiting else ((), (), ())
    )
    saved = {"version": _VERSION, "frozen": list(frozen), "holding_statistics": list(holding)}
    return {**saved, "rows": list(rows)} if rows else saved


def load_state_dict(state: Mapping[str, Any]) -> None:
    """Freeze again what was frozen when `state_dict` was called, at the first step boundary at which there is a model.

    Call it at any time, before or after the model is constructed. One line on stderr names what the state contains and the
    model no longer has. The rest is frozen.
    """
    saved = _read(state)
    if saved is None or saved == ((), (), ()):
        return
    probe = active_probe()
    if probe is not None:
        probe.dispatcher.saved_freezes.load(*saved)
        return
    _waiting[:] = [saved]
    count = len(saved[0]) + len(saved[2])
    write_line(
        f"nothing watches this run yet: {count} frozen tensor{'' if count == 1 else 's'} of a saved state will wait"
    )


def _read(state: Any) -> Saved | None:
    if not isinstance(state, Mapping) or state.get("version") != _VERSION:
        write_line("this is not a result of gradtui.state_dict(), or one of a later version: nothing is frozen")
        return None
    lists = [state.get(name, ()) for name in ("frozen", "holding_statistics", "rows")]
    if not all(isinstance(paths, (list, tuple)) and all(isinstance(path, str) for path in paths) for paths in lists):
        write_line("the lists of a saved state, such as `frozen` and `rows`, must have texts: nothing is frozen")
        return None
    return tuple(lists[0]), tuple(lists[1]), tuple(lists[2])
