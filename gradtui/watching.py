"""`gradtui.watch(model, optimizer)`: the explicit way, for a notebook or for a script that wants it."""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer

from gradtui.export.summary import summarise
from gradtui.probe import freeze_state
from gradtui.probe.active import Viewer, active_probe, active_viewer, set_active
from gradtui.probe.allocators import cpu_allocator
from gradtui.probe.black_box import BlackBox
from gradtui.probe.phase_sampler import PhaseSampler
from gradtui.probe.probe import Probe
from gradtui.probe.recent_measurements import RecentMeasurements
from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.events import RunStarted
from gradtui.runner.plain import PlainReporter, closing_lines
from gradtui.runner.run_files import RunFiles
from gradtui.samplers.sampler import SamplerThread
from gradtui.settings import DEFAULT_SHARE
from gradtui.state.run_state import RunState
from gradtui.transport.in_process import CommandQueue, EventQueue

T = TypeVar("T")

_watches: list[Watch] = []
"""The open watch, if there is one."""


def watch(
    model: nn.Module,
    *optimizers: Optimizer,
    name: str | None = None,
    progress: bool = True,
    budget: float = DEFAULT_SHARE,
) -> Watch:
    """Watch the training of `model` by `optimizers` from now on, without a screen.

    Args:
        model: the root module.
        optimizers: those that train it; one made later is found by itself.
        name: what to call the model; its class's name by default.
        progress: write a progress line to stderr every few seconds, what becomes of each toggle, and a closing summary.
        budget: share of the step time that sampled measuring aims at, 0 to 1; the hooks come on top.

    Returns:
        The watch, to be closed when training is over. Under the command `gradtui`, which watches already, the call says
        which model is meant and what it is called. Its toggles work there, and its summary is that of the run.

    Raises:
        RuntimeError: another watch is open in this process.
    """
    probe = active_probe()
    if probe is not None and not _watches:
        _introduce(probe, name, model, optimizers)
        return WatchInRun(probe, active_viewer())
    if probe is not None:
        raise RuntimeError("another gradtui.watch is open in this process; close it first")
    opened = Watch(progress=progress, budget=budget)
    _introduce(opened.probe, name, model, optimizers)
    opened.open()
    return opened


def _script() -> str:
    return getattr(sys.modules["__main__"], "__file__", None) or "interactive"


def _introduce(probe: Probe, name: str | None, model: nn.Module, optimizers: tuple[Optimizer, ...]) -> None:
    probe.view.discovery.name_model(name or type(model).__name__, model)
    for optimizer in optimizers:
        probe.view.discovery.saw_optimizer(optimizer)


class Watch:
    """A watched training, made by `watch`. Use it as a context manager, or call `close` when training is over."""

    def __init__(self, *, progress: bool, budget: float) -> None:
        self._events = EventQueue()
        self._commands = CommandQueue()
        allocator = cpu_allocator()
        self._ledger = allocator.name
        recent = RecentMeasurements(self._events.put)
        self.probe = Probe(recent.emit, self._commands, allocator, budget=budget)
        files = RunFiles(os.path.basename(_script()))
        BlackBox(self.probe, allocator, recent, files.write)
        self.probe.desk.write_file = files.write
        self._reporter = PlainReporter(self._events, silent=not progress)
        self._progress = progress
        self._sampler = SamplerThread(
            [PhaseSampler(self.probe.phases, self.probe.counter, self.probe.clock)],
            self._events.put,
            lambda _part, _error: None,
        )

    @property
    def state(self) -> RunState:
        """What is known of the training, a fraction of a second old."""
        return self._reporter.state

    def freeze(self, path: str, *, state: Literal["keep", "offload", "drop"] = "keep", statistics: bool = True) -> None:
        """Ask for what `path` names to be frozen at the next step boundary.

        Args:
            path: of a parameter or module, or any selection (`gradtui.state.selection`); empty for the whole model.
            state: what becomes of the optimizer's state: `keep`, `offload` (to host memory until the unfreeze) or `drop`.
            statistics: hold the running statistics of modules that are frozen wholly (BatchNorm).
        """
        self._commands.submit(lambda id_: SetTrainable(id_, path, False, state, statistics))

    def unfreeze(self, path: str) -> None:
        """Ask for what `path` names, likewise, to be trained from the next step boundary on."""
        self._commands.submit(lambda id_: SetTrainable(id_, path, True))

    def summary(self) -> dict[str, Any]:
        """The run so far, as `gradtui --summary` writes it.

        Asked for on the training thread it is complete; on any other it may lack the last hundredths of a second.
        """
        if self.probe.hooks.thread == get_ident():
            self.probe.report()
        self._reporter.drain()
        return summarise(self.state, dropped=self._events.dropped)

    def close(self) -> None:
        """Take every hook off. A second call does nothing."""
        if active_probe() is not self.probe:
            return
        set_active(None)
        _watches.remove(self)
        self._sampler.stop()
        self.probe.detach()
        self._reporter.finish()
        if self._progress:
            for line in closing_lines(self.state):
                self._reporter.say(line)

    def open(self) -> None:
        """Put the hooks on."""
        script = _script()
        version = str(torch.__version__)
        self._events.put(RunStarted(0.0, 0, script, (), os.getpid(), "cpu", self._ledger, version, None))
        set_active(self.probe)
        _watches.append(self)
        self.probe.attach()
        freeze_state.hand_over(self.probe)
        self._sampler.start()
        self._reporter.start()

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, entries: TracebackType | None
    ) -> None:
        self.close()


class WatchInRun(Watch):
    """What `watch` returns where the command `gradtui` watches: the same calls, of which `close` leaves the run alone."""

    def __init__(self, probe: Probe, viewer: Viewer | None) -> None:
        self.probe = probe
        self._commands = probe.commands
        self._viewer = viewer
        self._owner = os.getpid()

    @property
    def state(self) -> RunState:
        """What the viewer of the run knows; nothing in a forked process, or where the viewer does not answer."""
        return self._look(lambda state: state) or RunState()

    def summary(self) -> dict[str, Any]:
        """The run so far, as `gradtui --summary` writes it. Everything is unknown where the viewer does not answer.

        Asked for on the training thread it is complete; on any other it may lack the last hundredths of a second.
        """
        if self.probe.hooks.active and self.probe.hooks.thread == get_ident():
            self.probe.report()
        dropped = self._viewer.dropped() if self._viewer is not None else 0
        return self._look(lambda state: summarise(state, dropped=dropped)) or summarise(RunState(), dropped=0)

    def _look(self, at: Callable[[RunState], T]) -> T | None:
        # In a forked process there is no thread that could answer, and nobody to release its locks.
        if self._viewer is None or os.getpid() != self._owner:
            return None
        try:
            found: T | None = self._viewer.look(at)
        except Exception:  # noqa: BLE001 - the screen may fail at this moment; the script goes on
            return None
        return found

    def close(self) -> None:
        """The run goes on being watched."""
