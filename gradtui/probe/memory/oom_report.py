"""The black box: when an allocation fails, who held the memory is written down at once, whatever becomes of the run.

A failure is seen where the script's exceptions pass through our wrappers (forward, backward, a scaler's step, the DataLoader,
an optimizer's making), where one ends the script, and, on CUDA, by the allocator's observer before anything is raised. What a
script catches itself elsewhere on the CPU (within `Optimizer.step`, say) is not seen. Runs on the thread whose allocation
failed. It keeps nothing of the script's: neither the exception nor a frame, tensor or module.
"""

from __future__ import annotations

import contextlib
import weakref
from _thread import allocate_lock, get_ident
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from gradtui.probe.memory import storage_owners
from gradtui.probe.memory.allocation_failures import AllocationFailure, allocation_failure
from gradtui.probe.memory.memory_counters import MemoryCounter, device_allocator
from gradtui.probe.memory.recent_measurements import RecentEvents
from gradtui.probe.memory.reported_failures import ReportedFailures
from gradtui.probe.memory.storage_owners import Owners
from gradtui.probe.model import running_module
from gradtui.probe.runtime import WriteFile
from gradtui.probe.torch_private.cuda_private import observe_failed_allocations
from gradtui.probe.torch_private.dynamo_frames import leave_to_python
from gradtui.probe.torch_private.private_names import module_place_in_backward
from gradtui.protocol.events import OutOfMemory
from gradtui.samplers.cuda_allocator import read_allocator
from gradtui.state.out_of_memory import report

if TYPE_CHECKING:
    from gradtui.probe.probe import Probe

MAX_FILES = 5
"""So many failures of a run are looked at and written down, and the one that ends it. Of the others each that is a power of
two is told, without bytes: a script may try and fail all the time."""


class OomReporter:
    """Tells of each failed allocation of a probe's run, and writes the first ones down."""

    def __init__(
        self, probe: Probe, cpu: MemoryCounter, recent: RecentEvents, write_file: WriteFile | None = None
    ) -> None:
        self._probe = probe
        self._cpu = cpu
        self._recent = recent
        self._write_file = write_file
        self._told = ReportedFailures()
        self._count = 0
        self._announced = False
        """The observer has told of a failure whose exception has not been seen yet."""
        self._busy = allocate_lock()
        probe.hooks.raised = self.raised
        _observe(self)

    def raised(self, error: BaseException, ends: bool = False) -> None:
        """An exception of the script's passes by, or `ends` the script. Anything but a failed allocation is left alone."""
        failure = allocation_failure(error)
        if failure is None and error.__cause__ is not None:
            # A script's own exception, raised from it.
            error = error.__cause__
            failure = allocation_failure(error)
        if failure is None:
            return
        looked = self._told.looked(error)
        is_new = looked is None
        if is_new and self._announced and failure.device.startswith("cuda"):
            self._announced = False
            is_new, looked = False, self._count <= MAX_FILES
        if not is_new and (looked or not ends):
            self._told.note(error, looked=bool(looked))
            return
        looked = self._tell(
            failure, lambda: self._path(running_module.raised_in(error.__traceback__)), is_new=is_new, ends=ends
        )
        self._told.note(error, looked=looked)

    def allocation_failed(self, device: int, requested: int, on_device: int, free: int) -> None:  # noqa: ARG002
        """The CUDA allocator is about to raise. Nothing may be raised into it. A failure of our own is not the script's."""
        if self._probe.hooks.active and self._probe.hooks.running != get_ident():
            self._announced = True
            self._tell(AllocationFailure(f"cuda:{device}", "", requested), self._running)

    def _tell(
        self, failure: AllocationFailure, path: Callable[[], str | None], *, is_new: bool = True, ends: bool = False
    ) -> bool:
        """Tell of a failure if it is one of those that are told; whether it was looked at."""
        hooks = self._probe.hooks
        # Two threads may fail at once; and what is done here allocates too.
        if not self._busy.acquire(blocking=False):
            return False
        try:
            self._count += is_new
            looked = ends or self._count <= MAX_FILES
            if not looked and self._count & (self._count - 1):
                return False
            if hooks.thread in (None, get_ident()):
                hooks.run("black box", self._record, failure, path, looked)
            else:
                hooks.guard("black box", self._record, 0, failure, path, looked)
        finally:
            self._busy.release()
        return looked

    def _record(
        self,
        now: int,  # noqa: ARG002 - as every callback of a hook
        failure: AllocationFailure,
        path: Callable[[], str | None],
        looked: bool,
    ) -> None:
        probe = self._probe
        device = torch.device(failure.device)
        owners = self._owners(device) if looked else Owners((), (), True)
        event = OutOfMemory(
            at=probe.clock.at(),
            step=probe.counter.steps,
            number=self._count,
            device=failure.device,
            message=failure.message,
            requested=failure.requested,
            phase=probe.phases.marked() or probe.phases.phase,
            module=path(),
            categories=owners.categories,
            total=self._total(device) if looked else None,
            largest=owners.largest,
            whole=owners.whole,
            file=None,
            trouble=None,
        )
        self._recent.emit(self._written(event) if looked else event)

    def _owners(self, device: torch.device) -> Owners:
        view, sampled_step = self._probe.view, self._probe.step_sampler.sampled_step
        trace = sampled_step.trace if sampled_step is not None else None
        return storage_owners.find(view.tree, view.live_optimizers(), trace, device)

    def _total(self, device: torch.device) -> int | None:
        if device.type == "cuda":
            # The ledger's allocator would begin a new peak with this reading.
            reading = read_allocator(device.index or 0)
            return reading.allocated if reading.requested is None else reading.requested
        return (self._cpu if device.type == "cpu" else device_allocator(device)).read().total

    def _written(self, event: OutOfMemory) -> OutOfMemory:
        if self._write_file is None:
            return event
        text = report(event, self._recent.newest())
        try:
            path = self._write_file("out-of-memory", ".txt", lambda file: file.write(text.encode(errors="replace")))
        except OSError as error:
            return replace(event, trouble=error.strerror or str(error))
        return replace(event, file=path)

    def _running(self) -> str | None:
        module = running_module.running()
        if module is not None:
            return self._path(module)
        sampled_step = self._probe.step_sampler.sampled_step
        place = module_place_in_backward(sampled_step.trace.module_of) if sampled_step is not None else None
        tree = self._probe.view.tree
        if place is None or place < 0:
            parameter = running_module.parameter_in_backward(tree.owns)
            place = tree.parameters[parameter].module if parameter is not None else None
        return tree.modules[place].path if place is not None else None

    def _path(self, module: nn.Module | None) -> str | None:
        if module is None:
            return None
        tree = self._probe.view.tree
        place = tree.place_of(module)
        # A loss function, or a model that was never seen before: its class says more than nothing.
        return tree.modules[place].path if place >= 0 else type(module).__name__


_boxes: weakref.WeakSet[OomReporter] = weakref.WeakSet()
"""Those that the allocator's observer tells, of which all but one belong to runs that are over."""
_is_observed: list[bool] = []


def _observe(box: OomReporter) -> None:
    """Have the allocator's observer tell this black box for as long as there is one."""
    _boxes.add(box)
    if not _is_observed:
        _is_observed.append(True)
        observe_failed_allocations(_allocation_failed)


def _allocation_failed(device: int, requested: int, on_device: int, free: int) -> None:
    for box in tuple(_boxes):
        with contextlib.suppress(Exception):
            box.allocation_failed(device, requested, on_device, free)


leave_to_python(_allocation_failed, and_all_it_calls=True)
