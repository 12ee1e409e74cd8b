"""`gradtui.watch` and `gradtui.apply_schedule`, for notebooks and for scripts that run without the command."""

from __future__ import annotations

import atexit
import os
import sys
from _thread import get_ident
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import Optimizer

from gradtui.configuration.choices import DEFAULT_SHARE
from gradtui.probe.commands import ReplayedSchedule
from gradtui.probe.memory import protect_this_process
from gradtui.probe.probe import Probe
from gradtui.probe.runtime import ProbeOptions
from gradtui.probe.session import Session, Viewer, active_probe, active_viewer
from gradtui.protocol.codec import BadEntry
from gradtui.protocol.commands import Command, SetCheckpointing, SetRowsTrainable, SetTrainable
from gradtui.protocol.events import RunStarted
from gradtui.protocol.json_objects import to_object
from gradtui.protocol.schedule import Scheduled
from gradtui.records.export.schedule_file import load
from gradtui.records.export.summary import FOR_ITS_END, summarise
from gradtui.run.state.run_state import RunState
from gradtui.run.text import closing_lines, schedule_lines
from gradtui.run.text.html import run_html
from gradtui.runner.plain import PlainReporter
from gradtui.system.rank_environment import rank_of_several
from gradtui.system.run_files import RunFiles
from gradtui.transport.in_process import CommandQueue, EventQueue
from gradtui.watching.notebook import LiveTable, bundle
from gradtui.watching.receipt import Receipt, WatchedRun

_watches: list[Watch] = []
"""The open watch, if there is one."""


def watch(
    model: nn.Module,
    *optimizers: Optimizer,
    name: str | None = None,
    progress: bool = True,
    budget: float = DEFAULT_SHARE,
    return_at_nan: int = 0,
    return_at_spike: int = 0,
) -> Watch:
    """Watch the training of `model` by `optimizers` from now on, without a screen.

    Args:
        model: the root module.
        optimizers: the optimizers that train it; gradtui finds one created later by itself.
        name: name of the model; its class's name by default.
        progress: write to stderr a progress line every few seconds, the result of each toggle, and a closing summary.
        budget: share of the step time that sampled measuring aims at, 0 to 1; the hooks come on top.
        return_at_nan: how many returns in a row to the newest finite state, where NaN or Inf has spread, may not help; 0 for no
            returns.
        return_at_spike: the same at a spike of the loss or of the gradient norm.

    Returns:
        The watch; close it when training is over. Under the command `gradtui`, which already watches the run, this call only
        names the model and its optimizers. The returned watch can toggle, and its summary is that of the run. A notebook shows
        a watch as a table, which is updated while a cell trains.

    Raises:
        RuntimeError: another watch is open in this process.
    """
    probe = active_probe()
    if probe is not None and not _watches:
        _introduce(probe, name, model, optimizers)
        return WatchInRun(probe, active_viewer())
    if probe is not None:
        raise RuntimeError("another gradtui.watch is open in this process; close it first")
    opened = Watch(progress=progress, budget=budget, return_at_nan=return_at_nan, return_at_spike=return_at_spike)
    _introduce(opened.probe, name, model, optimizers)
    opened.open()
    return opened


def apply_schedule(
    file: str | os.PathLike[str], model: nn.Module | Mapping[str, nn.Module], *optimizers: Optimizer
) -> Watch:
    """Apply a schedule file to the training that follows, with the same handlers as `gradtui --schedule FILE`.

    `step` of an entry counts the optimizer steps from this call on. This call makes no measurements for a display.

    Args:
        file: a schedule file (TOML).
        model: the root module, or a mapping from names to root modules; the paths in the file then begin with these names.
        optimizers: the optimizers that train it; gradtui finds one created later by itself.

    Returns:
        The open watch. It closes when the process ends, or by `close`, which also ends the schedule. It then reports on stderr
        the entries that the training did not reach.

    Raises:
        ValueError: the file is no schedule; the message names the entry.
        RuntimeError: the run has a schedule already, or a watch is open.
        SystemExit: during training, with exit code 2, if an entry names something that no model has, or would break the run. A
            line on stderr names the entry and the reason.
    """
    try:
        entries = load(Path(file))
    except BadEntry as error:
        raise ValueError(f"{os.fspath(file)}: {error}") from None
    models = model if isinstance(model, Mapping) else {type(model).__name__: model}
    probe = active_probe()
    if probe is None:
        opened = Watch(progress=False, budget=0.0, schedule=entries)
        for name, each in models.items():
            _introduce(opened.probe, name, each, optimizers)
        opened.open()
        atexit.register(opened.close)
        return opened
    if _watches or probe.dispatcher.schedule.total:
        reason = (
            "a gradtui.watch is open in this process" if _watches else "this run has a schedule already (--schedule)"
        )
        raise RuntimeError(f"{reason}: no other schedule can be applied")
    for name, each in models.items():
        _introduce(probe, name, each, optimizers)
    probe.dispatcher.schedule = ReplayedSchedule(entries)
    return WatchInRun(probe, active_viewer())


def script_name() -> str:
    """Return the path of the script, or what stands for it."""
    return getattr(sys.modules["__main__"], "__file__", None) or "interactive"


def _introduce(probe: Probe, name: str | None, model: nn.Module, optimizers: tuple[Optimizer, ...]) -> None:
    probe.view.discovery.name_model(name or type(model).__name__, model)
    for optimizer in optimizers:
        probe.view.discovery.register_optimizer(optimizer)


class Watch:
    """A watched training. `watch` returns it. Use it as a context manager, or call `close` when training is over."""

    _is_of_script = True
    """Whether the script has opened it, which may open one at a time."""

    def __init__(
        self,
        *,
        progress: bool,
        budget: float,
        schedule: Sequence[Scheduled] = (),
        return_at_nan: int = 0,
        return_at_spike: int = 0,
    ) -> None:
        self._events = EventQueue()
        self._commands = CommandQueue()
        write_file = RunFiles(os.path.basename(script_name())).write
        self._session = Session(
            self._events.put,
            ProbeOptions(
                self._commands,
                budget=budget,
                schedule=schedule,
                write_file=write_file,
                return_at_nan=return_at_nan,
                return_at_spike=return_at_spike,
            ),
        )
        self.probe = self._session.probe
        self._reporter = PlainReporter(self._events, silent=not progress, rank=rank_of_several(os.environ))
        self._run = WatchedRun(self.probe, self._reporter.look)
        self._table: LiveTable | None = None
        self._progress, self._budget = progress, budget
        self._owner = os.getpid()

    @property
    def state(self) -> RunState:
        """The state of the training, a fraction of a second old."""
        return self._reporter.state

    def freeze(
        self,
        path: str,
        *,
        state: Literal["keep", "offload", "drop"] = "keep",
        statistics: bool = True,
        rows: str | None = None,
    ) -> Receipt:
        """Freeze the parameters that `path` names at the next step boundary. This call does not wait for it.

        Args:
            path: path of a parameter or module, or any selection (`run.state.tree.selection`); empty for the whole model.
            state: what to do with the optimizer's state: `keep`, `offload` (to host memory until the unfreeze) or `drop`.
            statistics: hold the running statistics of modules (BatchNorm) whose parameters are all frozen.
            rows: only these rows of the one parameter that `path` names, as slices: `0:32000`, `-4:`, `0:10,20:30`. They and
                their optimizer state keep their bits while the other rows train; `state` and `statistics` do not apply.

        Returns:
            The receipt. `await receipt`, or `receipt.result(timeout=…)` on a thread other than the training thread, waits for
            what the change did and what it measurably changed: memory in bytes, the duration of a step in seconds. Both raise
            `gradtui.NotAppliedError` with the reason if the freeze was refused.
        """
        if rows is not None:
            return self._submit(lambda id_: SetRowsTrainable(id_, path, False, rows))
        return self._submit(lambda id_: SetTrainable(id_, path, False, state, statistics))

    def unfreeze(self, path: str, *, restore: bool = False, rows: str | None = None) -> Receipt:
        """Unfreeze the parameters that `path` names, as in `freeze`, at the next step boundary. Return the receipt.

        With `restore` only those that commands have frozen: what the script has frozen itself stays frozen. With `rows` only
        these rows of the one parameter that `path` names. Of a parameter that is frozen as a whole they train alone.
        """
        if rows is not None:
            return self._submit(lambda id_: SetRowsTrainable(id_, path, True, rows))
        return self._submit(lambda id_: SetTrainable(id_, path, True, restore=restore))

    def checkpoint(self, path: str, on: bool = True) -> Receipt:
        """Turn activation checkpointing of a module on or off at the next step boundary. The step that follows tries it first.

        Args:
            path: path of the module.
            on: backward computes the module's activations again instead of keeping them.

        Returns:
            The receipt, as of `freeze`. It raises `gradtui.NotAppliedError` also if the trial gave other gradients.
        """
        return self._submit(lambda id_: SetCheckpointing(id_, path, on))

    def _submit(self, make: Callable[[int], Command]) -> Receipt:
        return Receipt(self._run, self._commands.submit(make, "script"))

    def _repr_html_(self) -> str:
        """Return the state of the run as HTML, which any notebook shows."""
        return run_html(self.state, is_over=self._run.is_over)

    def _ipython_display_(self) -> None:
        """Display the state of the run as a table. In a Jupyter kernel it stays up to date until `close`."""
        if self._table is None:
            self._table = LiveTable(self._bundle, self._run.catch_up)
        self._table.display(live=not self._run.is_over)

    def _bundle(self) -> dict[str, str] | None:
        is_over = self._run.is_over
        return self._run.ask(lambda state: bundle(state, is_over=is_over))

    def summary(self) -> dict[str, Any]:
        """Return the summary of the run so far, as `gradtui --summary` writes it.

        It is complete if called on the training thread. On any other thread it may lack the last hundredths of a second.
        """
        if self.probe.hooks.thread == get_ident():
            self.probe.report()
        self._reporter.drain()
        return to_object(summarise(self.state, dropped=self._events.dropped))

    def close(self) -> None:
        """Remove all hooks. A second call, or a call in a forked process, does nothing."""
        if active_probe() is not self.probe or os.getpid() != self._owner:
            return
        atexit.unregister(self.close)
        if self._is_of_script:
            _watches.remove(self)
        self._session.stop()
        self._reporter.finish()
        self._run.is_closed = True
        if self._table is not None:
            self._table.close()
        if self._progress:
            closing = closing_lines(summarise(self.state, dropped=self._events.dropped, without=FOR_ITS_END).ending)
        else:
            closing = schedule_lines(self.state)
        for line in closing:
            self._reporter.say(line)

    def open(self) -> None:
        """Install the hooks."""
        script = script_name()
        version = str(torch.__version__)
        found = "cpu", self._session.ledger, version, None
        self._events.put(RunStarted(0.0, 0, script, (), os.getpid(), *found, budget=self._budget))
        if self._is_of_script:
            _watches.append(self)
        # gradtui's own blocks must not count in the peaks that the script reads. This lasts to the end of the process.
        protect_this_process()
        self._session.start()
        self._reporter.start()

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, entries: TracebackType | None
    ) -> None:
        self.close()


class WatchInRun(Watch):
    """The `Watch` that `watch` returns under the command `gradtui`. Its `close` does not end the run's watch."""

    def __init__(self, probe: Probe, viewer: Viewer | None) -> None:
        self.probe = probe
        self._commands = probe.commands
        self._viewer = viewer
        self._run = WatchedRun(probe, viewer.look if viewer is not None else lambda _: None)
        self._table = None

    @property
    def state(self) -> RunState:
        """The state of the run's viewer; an empty state in a forked process, or if the viewer does not answer."""
        return self._run.ask(lambda state: state) or RunState()

    def summary(self) -> dict[str, Any]:
        """Return the summary of the run so far, as `gradtui --summary` writes it. If the viewer does not answer, every value is
        unknown.

        It is complete if called on the training thread. On any other thread it may lack the last hundredths of a second.
        """
        if self.probe.hooks.active and self.probe.hooks.thread == get_ident():
            self.probe.report()
        dropped = self._viewer.dropped() if self._viewer is not None else 0
        found = self._run.ask(lambda state: summarise(state, dropped=dropped))
        return to_object(found or summarise(RunState(), dropped=0))

    def close(self) -> None:
        """Do nothing: the command continues to watch the run."""
