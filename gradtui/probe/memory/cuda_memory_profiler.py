"""Profile one step with the CUDA allocator's history, which has what no dispatch mode sees. Training thread only.

A mode would see backward too (autograd's threads inherit it), but not what kernels take while they run, and with a mode torch
picks other formulas in some backwards, so that the peak could differ (`isTensorSubclassLike`).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from time import perf_counter_ns

from torch.optim import Optimizer

from gradtui.probe.autograd import OUTSIDE, GraphSummary, ModuleCallLog, OperationLog
from gradtui.probe.memory.allocation_history import Notes, course_of
from gradtui.probe.memory.allocation_log import MAX_EVENTS
from gradtui.probe.memory.memory_profiler import known_tensors, profile_of
from gradtui.probe.memory.step_recorder import StepRecorder
from gradtui.probe.model import ModuleTree
from gradtui.probe.torch_private.cuda_history import of_this_process as history
from gradtui.probe.torch_private.private_names import is_lazy
from gradtui.probe.torch_private.unwrap import plain_tensors
from gradtui.protocol.events import StepMemoryProfiled
from gradtui.protocol.step_peaks import CUDA_BLOCK
from gradtui.protocol.vocabulary import Phase


class CudaMemoryProfiler(StepRecorder[OperationLog]):
    """Profiles one step on the devices with these indexes; there is no profile if the history cannot begin."""

    def __init__(
        self, tree: ModuleTree, modules: ModuleCallLog, optimizers: Iterable[Optimizer], devices: Sequence[int]
    ) -> None:
        super().__init__(tree, modules, OperationLog())
        self._optimizers = [weakref.ref(optimizer) for optimizer in optimizers]
        self._devices, self._notes = devices, Notes()
        self._notes.begin = dict(self._known())
        # Each free has two entries.
        history.begin(2 * MAX_EVENTS)
        self._begin = history.position(devices)
        modules.moved = _mark
        _mark(modules.now)

    def phase(self, phase: Phase) -> None:
        """Record that this phase begins."""
        position = history.position(self._devices)
        if position is not None:
            self._notes.phases.append((position, phase))
        super().phase(phase)

    def saved(self, facts: GraphSummary) -> None:
        """Record which modules have saved what autograd keeps when backward begins."""
        living = ((key, reference()) for key, reference in facts.references.items() if key in facts.saved_by)
        addresses = {storage.data_ptr(): facts.saved_by[key] for key, storage in living if storage is not None}
        position = history.position(self._devices)
        if position is not None:
            self._notes.saved.append((position, addresses))

    def finish(self, at: float, step: int) -> StepMemoryProfiled | None:
        """End the history and return the profile of the step; None if the script has begun to record meanwhile."""
        began = perf_counter_ns()
        self._notes.end = dict(self._known())
        last, recorded = history.position(self._devices), history.end(self._devices)
        self.close()
        # The counts are wrong if the script has reset them.
        if recorded is None or last is None or self._begin is None:
            return None
        first = last - len(recorded.entries)
        if not self._notes.phases or (recorded.is_whole and first != self._begin):
            return None
        course = course_of(recorded, first, self._notes)
        found = profile_of(course, self._tree, at, step, is_whole=recorded.is_whole, block=CUDA_BLOCK)
        if found.in_blocks is not None:
            found = replace(found, in_blocks=replace(found.in_blocks, reserved=recorded.reserved))
        self.log.own_ns += perf_counter_ns() - began
        return found

    def close(self) -> None:
        """Stop. The results stay."""
        super().close()
        self._modules.moved = None
        history.stop()

    def _known(self) -> Iterator[tuple[int, tuple[str, int]]]:
        for tensor, kind, module in known_tensors(self._tree, self._optimizers):
            for plain in plain_tensors(tensor) if not is_lazy(tensor) else ():
                if plain.is_cuda and plain.device.index in self._devices:
                    yield plain.untyped_storage().data_ptr(), (kind, module)


def _mark(module: int) -> None:
    history.mark(str(module if module >= 0 else OUTSIDE))
