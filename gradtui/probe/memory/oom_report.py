"""Write an out-of-memory report as soon as an allocation fails, whatever becomes of the run.

A failure is detected as an exception of the script passes one of gradtui's wrappers (forward, backward, a scaler's step, the
DataLoader, an optimizer's construction), as it ends the script, or, on CUDA, by the allocator's observer before anything is
raised. Failures that a script catches itself elsewhere on the CPU (within `Optimizer.step`, for example) are not detected.
Runs on the thread whose allocation failed. Keeps nothing of the script's: neither the exception nor a frame, tensor or
module.
"""

from __future__ import annotations

import contextlib
import weakref
from _thread import allocate_lock, get_ident
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import torch
from torch import nn

from gradtui.probe.autograd import ModuleCallLog
from gradtui.probe.memory import storage_owners
from gradtui.probe.memory.allocation_failures import AllocationFailure, ReportedFailures, allocation_failure
from gradtui.probe.memory.memory_counters import device_allocator
from gradtui.probe.memory.storage_owners import Owners
from gradtui.probe.model import nearest_leaf, running_module
from gradtui.probe.samplers.cpu_memory import MemoryCounter
from gradtui.probe.samplers.device import read_allocator
from gradtui.probe.steps import ProbeContext
from gradtui.probe.torch_private.cuda import observe_failed_allocations
from gradtui.probe.torch_private.dynamo_frames import leave_all_to_python
from gradtui.probe.torch_private.private_names import number_of, running_node
from gradtui.protocol.events import OutOfMemory
from gradtui.protocol.vocabulary import Phase
from gradtui.run.text.out_of_memory import oom_report
from gradtui.run.text.units import size_text
from gradtui.system.atomic_file import WriteFile
from gradtui.transport.recent_events import RecentEvents

MAX_FILES = 5
"""Number of failures of a run that get a full report in a file, besides the one that ends the run. Of later failures, only
those whose number is a power of two are reported, without bytes: a script may retry all the time."""


Present = Callable[[], tuple[Phase, ModuleCallLog | None]]
"""Returns the present phase, and the log of the module calls if the present step is sampled. Any thread may call it."""


class OomReporter:
    """Reports failed allocations of a probe's run, and writes the first ones to files."""

    def __init__(
        self,
        context: ProbeContext,
        present: Present,
        cpu: MemoryCounter,
        recent: RecentEvents,
        write_file: WriteFile | None = None,
    ) -> None:
        self._context, self._present = context, present
        self._cpu = cpu
        self._recent = recent
        self._write_file = write_file
        self._reported = ReportedFailures()
        self._count = 0
        self._announced = False
        """The observer has reported a failure whose exception has not arrived yet."""
        self._busy = allocate_lock()
        _reporters.add(self)
        _observe()

    def raised(self, error: BaseException, ends: bool = False) -> None:
        """Handle an exception that passes a wrapper or `ends` the script. Anything but a failed allocation is ignored."""
        failure = allocation_failure(error)
        if failure is None and (cause := _cause_of(error)) is not None:
            # An exception of the script's own, raised from it.
            error, failure = cause, allocation_failure(cause)
        if failure is None:
            return
        is_full = self._reported.is_full(error)
        is_new = is_full is None
        if is_new and self._announced and failure.device.startswith("cuda"):
            self._announced = False
            is_new, is_full = False, self._count <= MAX_FILES
        if not is_new and (is_full or not ends):
            self._reported.note(error, is_full=bool(is_full))
            return
        is_full = self._report(
            failure, lambda: self._path(running_module.raised_in(error.__traceback__)), is_new=is_new, ends=ends
        )
        self._reported.note(error, is_full=is_full)

    def allocation_failed(self, device: int, requested: int, capacity: int, free: int) -> None:
        """Handle a failure that the CUDA allocator is about to raise. Must not raise. Ignores gradtui's own allocations.

        Args:
            device: the index of the device.
            requested: the bytes that it could not get.
            capacity: the bytes of the device, or fewer if the script has set a limit.
            free: the bytes of these that are free.
        """
        if self._context.hooks.active and self._context.hooks.running != get_ident():
            self._announced = True
            # The script may catch the exception, whose message is the same in other words, before gradtui sees it.
            message = f"the allocator could not get {size_text(requested)}: {size_text(free)} of {size_text(capacity)} are free"
            self._report(AllocationFailure(f"cuda:{device}", message, requested), self._running)

    def _report(
        self, failure: AllocationFailure, path: Callable[[], str | None], *, is_new: bool = True, ends: bool = False
    ) -> bool:
        """Report a failure if its number is one of those to report. Return whether the report is a full one."""
        hooks = self._context.hooks
        # Two threads may fail at the same time, and this code allocates too.
        if not self._busy.acquire(blocking=False):
            return False
        try:
            self._count += is_new
            is_full = ends or self._count <= MAX_FILES
            if not is_full and self._count & (self._count - 1):
                return False
            if hooks.thread in (None, get_ident()):
                hooks.run("out-of-memory report", self._record, failure, path, is_full)
            else:
                hooks.guard("out-of-memory report", self._record, 0, failure, path, is_full)
        finally:
            self._busy.release()
        return is_full

    def _record(
        self,
        now: int,  # noqa: ARG002 - as every callback of a hook
        failure: AllocationFailure,
        path: Callable[[], str | None],
        is_full: bool,
    ) -> None:
        (phase, calls), context = self._present(), self._context
        device = torch.device(failure.device)
        owners = self._owners(device, calls) if is_full else Owners((), (), True)
        event = OutOfMemory(
            at=context.clock.at(),
            step=context.counter.steps,
            number=self._count,
            device=failure.device,
            message=failure.message,
            requested=failure.requested,
            phase=phase,
            module=path(),
            categories=owners.categories,
            total=self._total(device) if is_full else None,
            largest=owners.largest,
            whole=owners.whole,
            file=None,
            trouble=None,
        )
        self._recent.emit(self._written(event) if is_full else event)

    def _owners(self, device: torch.device, calls: ModuleCallLog | None) -> Owners:
        models = self._context.models
        return storage_owners.find(models.tree, models.live_optimizers(), calls, device)

    def _total(self, device: torch.device) -> int | None:
        if device.type == "cuda":
            # The breakdown's allocator would begin a new peak with this reading.
            reading = read_allocator(device.index or 0)
            return reading.allocated if reading.requested is None else reading.requested
        return (self._cpu if device.type == "cpu" else device_allocator([device])).read().total

    def _written(self, event: OutOfMemory) -> OutOfMemory:
        if self._write_file is None:
            return event
        text = oom_report(event, self._recent.newest())
        try:
            path = self._write_file("out-of-memory", ".txt", lambda file: file.write(text.encode(errors="replace")))
        except OSError as error:
            return replace(event, trouble=error.strerror or str(error))
        return replace(event, file=path)

    def _running(self) -> str | None:
        module = running_module.running()
        if module is not None:
            return self._path(module)
        node, tree = running_node(), self._context.models.tree
        if node is None:
            return None
        _, calls = self._present()
        index: int | None = calls.module_of(number_of(node)) if calls is not None else None
        if index is None or index < 0:
            parameter = nearest_leaf(node, tree.owns)
            index = tree.owners[parameter] if parameter is not None else None
        return tree.modules[index].path if index is not None else None

    def _path(self, module: nn.Module | None) -> str | None:
        if module is None:
            return None
        tree = self._context.models.tree
        index = tree.index_of(module)
        # For a loss function, or a model that is not listed, the class is better than nothing.
        return tree.modules[index].path if index >= 0 else type(module).__name__


_cause_of: Callable[[BaseException], BaseException | None] = vars(BaseException)["__cause__"].__get__
"""Returns the cause of an exception without calling what the script's class may define in its place."""

_reporters: weakref.WeakSet[OomReporter] = weakref.WeakSet()
"""Reporters that receive the observer's calls. All but one belong to runs that are over."""


@cache
def _observe() -> None:
    """Register with the allocator's observer for good: it cannot be removed."""
    observe_failed_allocations(_allocation_failed)


@leave_all_to_python
def _allocation_failed(device: int, requested: int, capacity: int, free: int) -> None:
    for reporter in tuple(_reporters):
        with contextlib.suppress(Exception):
            reporter.allocation_failed(device, requested, capacity, free)
