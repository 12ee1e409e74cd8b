"""One run from end to end on the main thread: probe on, script, probe off, with the queues that connect it to a viewer.

torch is imported here, after the first paint of a screen, and never by the modules that import this one.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from gradtui.protocol.events import ProbeFailed, RunEnded, RunStarted
from gradtui.runner.ending import Outcome
from gradtui.runner.run_files import RunFiles
from gradtui.runner.script import Program, run
from gradtui.settings import Settings
from gradtui.transport.in_process import CommandQueue, EventQueue

if TYPE_CHECKING:
    from gradtui.probe.probe import Probe
    from gradtui.samplers.sampler import SamplerThread


@dataclass
class TrainingRun:
    """A script, and the two queues between it and whoever watches."""

    settings: Settings
    program: Program
    log: str | None = None
    events: EventQueue = field(default_factory=EventQueue)
    commands: CommandQueue = field(default_factory=CommandQueue)

    def execute(self) -> Outcome:
        """Run the script to its end. What it raises is in the outcome; where torch is missing it runs unwatched."""
        began = monotonic()
        watched = self._watch()
        outcome = run(self.program, watched[0].hooks.ends if watched is not None else None)
        if outcome.forked:
            return outcome
        at, step = monotonic() - began, 0
        if watched is not None:
            probe, sampler = watched
            self._set_active(None)
            sampler.stop()
            probe.detach()
            probe.desk.finish(probe.counter.steps)
            at, step = probe.clock.at(), probe.counter.steps
        self.events.put(RunEnded(at, step, outcome.exit_code, outcome.error))
        return outcome

    def _watch(self) -> tuple[Probe, SamplerThread] | None:
        try:
            return self._attach()
        except Exception as error:  # noqa: BLE001 - without a probe the script still runs
            sys.stderr.write(f"gradtui: cannot watch this run: {type(error).__name__}: {error}\n")
            self.events.put(RunStarted(0.0, 0, *self._identity(), device="", ledger="", torch_version="", log=self.log))
            self.events.put(ProbeFailed(0.0, 0, "probe", f"{type(error).__name__}: {error}", True))
            return None

    def _set_active(self, probe: Probe | None) -> None:
        from gradtui.probe.active import set_active

        set_active(probe)

    def _identity(self) -> tuple[str, tuple[str, ...], int]:
        target = self.settings.target
        return target.name, target.arguments, os.getpid()

    def _attach(self) -> tuple[Probe, SamplerThread]:
        import torch

        from gradtui.probe.allocators import cpu_allocator
        from gradtui.probe.black_box import BlackBox
        from gradtui.probe.peak_counters import protect_this_process
        from gradtui.probe.phase_sampler import PhaseSampler
        from gradtui.probe.probe import Probe
        from gradtui.probe.recent_measurements import RecentMeasurements
        from gradtui.probe.replayed_schedule import ReplayedSchedule
        from gradtui.samplers.device import DeviceSampler
        from gradtui.samplers.sampler import SamplerThread

        # The process ends with the script, so nothing of what is folded can be lost to it.
        protect_this_process()
        allocator = cpu_allocator()
        put = self.events.put
        settings = self.settings
        recent = RecentMeasurements(put)
        probe = Probe(recent.emit, self.commands, allocator, budget=settings.budget, stop_after=settings.steps)
        files = RunFiles(settings.target.name)
        BlackBox(probe, allocator, recent, files.write)
        probe.desk.write_file = files.write
        probe.desk.schedule = ReplayedSchedule(settings.schedule)
        clock = probe.clock
        version = str(torch.__version__)
        put(RunStarted(0.0, 0, *self._identity(), "cpu", allocator.name, version, self.log))
        samplers = (
            PhaseSampler(probe.phases, probe.counter, clock),
            DeviceSampler(clock.at, lambda: probe.counter.steps, lambda: probe.examiner.device_index),
        )
        sampler = SamplerThread(
            samplers, put, lambda part, error: put(ProbeFailed(clock.at(), probe.counter.steps, part, error, True))
        )
        self._set_active(probe)
        probe.attach()
        sampler.start()
        return probe, sampler
