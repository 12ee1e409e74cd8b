"""Compose a probe and its samplers, as `gradtui train.py`, `gradtui.watch` and `gradtui.apply_schedule` use them."""

from __future__ import annotations

from collections.abc import Callable

from gradtui.probe import freeze_state
from gradtui.probe.active import Viewer, set_active
from gradtui.probe.memory import cpu_allocator
from gradtui.probe.probe import Probe
from gradtui.probe.runtime import ProbeOptions
from gradtui.probe.steps import PhaseSampler
from gradtui.protocol.events import Event, ProbeFailed
from gradtui.samplers.device import DeviceSampler
from gradtui.samplers.sampler import SamplerThread


class Session:
    """Observes this process from `start` to `stop`.

    Attributes:
        probe: the probe.
        ledger: the name of the counter of CPU memory.
    """

    def __init__(self, emit: Callable[[Event], None], options: ProbeOptions) -> None:
        allocator = cpu_allocator()
        self.ledger = allocator.name
        self.probe = probe = Probe(emit, allocator, options)
        self._emit = emit
        samplers = (
            PhaseSampler(probe.parts.phase, probe.counter, probe.clock),
            DeviceSampler(probe.clock.at, lambda: probe.counter.steps, lambda: probe.step_sampler.device_index),
        )
        self._sampler = SamplerThread(samplers, emit, self._failed)

    def start(self, viewer: Viewer | None = None) -> None:
        """Install the hooks and start the sampler thread. `viewer` receives the events under the command `gradtui`."""
        set_active(self.probe, viewer)
        self.probe.attach()
        freeze_state.hand_over(self.probe)
        self._sampler.start()

    def stop(self) -> None:
        """Remove the hooks, stop the sampler thread, and emit the remaining events. Never raises an `Exception`."""
        probe = self.probe
        leaving: tuple[tuple[str, Callable[[], object]], ...] = (
            ("probe", lambda: set_active(None)),
            ("sampler", self._sampler.stop),
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
