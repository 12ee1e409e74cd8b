"""Count the operations that the script's own code starts in a few sampled steps, and find where it reads values.

Training thread. A dispatch mode counts them. It is active between two hooks only, in the parts of a step that are the script's
own code, on an empty stack of modes, and never in backward, where torch picks other formulas under a mode. A mode that the
script enters meanwhile lies on top of it and is left first.
"""

from __future__ import annotations

import functools
import sys
import weakref
from _thread import get_ident
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from types import FrameType
from typing import Any

import torch
from torch import nn

from gradtui.probe.autograd import OUTSIDE, OperationLog
from gradtui.probe.runtime import call_in_forked_children
from gradtui.probe.sampling.sampled_step import SampledStep
from gradtui.probe.steps import PhaseTracker, ProbeContext
from gradtui.probe.torch_private.operation_mode import counting_writes, something_is_compiled, writes_tensors_of_a_list
from gradtui.probe.torch_private.private_names import operations_are_observed
from gradtui.protocol.step_operations import OperationsCounted, PartOperations, ReadLine
from gradtui.protocol.step_times import StepPart
from gradtui.system.own_frames import Entry, is_of_script, line_at
from gradtui.system.signal_handlers import raised_by_handler

_COUNTED = frozenset(index + second for index in (2, 7, 31, 127, 511) for second in (0, 1))
"""Which sampled steps are counted: pairs, since two optimizers may step in turns. The first one has much that is done once."""
_MOST = 20_000
"""Operations of a step after which no more are counted."""
_LARGE_NS = 40_000
_STARTING_NS = 10_000
"""Nanoseconds of a small operation at most that are spent on starting it. In the others it computes."""
_AROUND_NS = 3_000
"""Estimated nanoseconds of the Python code and of autograd around a small operation."""
_DISPATCH_NS = 6_000
"""Estimated nanoseconds that torch takes to dispatch an operation to Python."""
_PARTS = (StepPart.PREPARE, StepPart.FORWARD, StepPart.OTHER)
_LINES = 3
_RESULTS = 32
"""Operations whose results a read is compared with: a distribution makes some between its parameters and its sample."""
_MASKS = (torch.bool, torch.uint8)
_WHOLE = {kind.forward.__code__ for kind in (nn.RNN, nn.LSTM, nn.GRU)}
_OPERATION, _READ, _COPY, _INDEX = range(4)
_READS = {
    "aten::_local_scalar_dense": _READ, "aten::nonzero": _READ, "aten::masked_select": _READ, "aten::_unique2": _READ,
    "aten::unique_dim": _READ, "aten::unique_consecutive": _READ, "aten::equal": _READ, "aten::is_nonzero": _READ,
    "aten::_to_copy": _COPY, "aten::copy_": _COPY, "aten::index": _INDEX,
}  # fmt: skip
"""Operations for which the host waits if their tensor lies on a device (CUDASyncDebugMode warns of them)."""

Kind = tuple[StepPart, Any, int, int]
"""The part, the operation (None: one of a recurrent module), and the elements of its first argument and of its result."""


class OperationCount(OperationLog):
    """Counts the operations of some steps. `hooks` leaves it before each callback, and enters it again after that."""

    def __init__(self, context: ProbeContext, phases: PhaseTracker) -> None:
        super().__init__()
        self._has_checkpoints = False
        """Whether forward runs again within backward: under a mode it might save other tensors than without."""
        self._emit, self._clock, self._counter = context.emit, context.clock, context.counter
        self._hooks, self._times = context.hooks, phases.times
        self._samples = self._graph = self._most = self._thread = 0
        self._is_counting = False
        self._steps = 0
        self._quickest: dict[Kind, list[int]] = {}
        """By kind: how many operations there were, and the nanoseconds of the quickest. Other processes only add time."""
        self._reads = {part: [0, 0] for part in _PARTS}
        """Of each part: reads, and nanoseconds of waits."""
        self._lines: dict[Entry, list[int]] = {}
        """By line of the script: reads, and nanoseconds of waits."""
        self._calls = self._reads_of_results = 0
        self._results: deque[weakref.ref[torch.Tensor]] = deque(maxlen=_RESULTS)
        """Of the newest operations."""
        self._since, self._newest = 0, None
        """When counting began or the newest operation ended, and which one that was."""
        self._between: dict[tuple[StepPart, Any, Any], list[int]] = {}
        """By the operations before and after: how often code ran between them, and the nanoseconds of the quickest time."""
        self._kinds: dict[Any, int] = {}
        self._lists: dict[Any, bool] = {}
        """Whether an operation writes to all tensors of a list."""
        self._files: dict[str, bool] = {}
        self._synchronize: tuple[Callable[..., None], Callable[..., None]] | None = None
        """torch's function of this name, and what stands in its place now."""
        call_in_forked_children(self.stop)

    def begin_step(self) -> bool:
        """Begin a sampled step, and count its operations if it is one of those that are counted. Return whether it is."""
        self._samples += 1
        if self._samples - 1 in _COUNTED and not self._has_checkpoints and not something_is_compiled():
            self._thread, self._most, self._is_counting = get_ident(), _MOST, True
            self._hooks.counting = self
            if torch.cuda.is_initialized():
                self._watch_synchronize()
        return self._is_counting

    def end_step(self, sampled_step: SampledStep) -> None:
        """End a sampled step, and emit what was counted so far."""
        self._has_checkpoints |= sampled_step.has_checkpoints
        if self._is_counting:
            self.stop()
            self._graph += sampled_step.graph_operations
            self._calls += sampled_step.trace.modules.count(OUTSIDE)
            self._steps += 1
            self._hooks.charge(self.own_ns + self.operations * _DISPATCH_NS)
            self.own_ns = self.operations = 0
            self._emit(self._counted())

    def drop(self) -> None:
        """Forget the operations so far: other models train now."""
        self.stop()
        self._steps = self._graph = self._calls = self._reads_of_results = self.operations = self.own_ns = 0
        self._reads = {part: [0, 0] for part in _PARTS}
        self._quickest.clear()
        self._between.clear()
        self._lines.clear()

    def enter(self) -> None:
        """Count from here on, if the script's own code follows."""
        is_here = self._is_counting and self._times.part in _PARTS and get_ident() == self._thread
        if is_here and not operations_are_observed():
            super().enter()
            self._since, self._newest = perf_counter_ns(), None

    def leave(self) -> bool:
        """Count no more. Return whether that was possible; if not, a later call tries again."""
        if self._since and get_ident() == self._thread:
            self._code_ran(None, perf_counter_ns())
            self._since = 0
        has_left = super().leave()
        if has_left and not self._is_counting:
            self._hooks.counting = None
        return has_left

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation, and count it."""
        if func not in self._lists:
            self._lists[func] = writes_tensors_of_a_list(func)
        began = perf_counter_ns()
        if self._lists[func] and args:
            with counting_writes(args[0]):
                result = self._call(func, args, kwargs)
        else:
            result = self._call(func, args, kwargs)
        if self._hooks.running is None and self.operations < self._most:
            self.operations += 1
            ended = perf_counter_ns()
            try:
                self._code_ran(func, began)
                self._count(func, args, kwargs or {}, result, ended - began)
            except Exception as error:
                if raised_by_handler(error):
                    raise
                self._most = 0
            self._since, self._newest = perf_counter_ns(), func
            self.own_ns += self._since - ended
        return result

    def _count(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, nanoseconds: int) -> None:
        part = self._times.part
        if part not in self._reads:
            return
        kind = self._kinds.get(func)
        if kind is None:
            kind = self._kinds[func] = _READS.get(func.name().partition(".")[0], _OPERATION)
        waits = kind != _OPERATION and _waits(kind, args, kwargs, result)
        if waits or kind == _READ:
            self._read(part, nanoseconds if waits else 0)
            is_result = part is StepPart.FORWARD and any(each() is args[0] for each in self._results)
            self._reads_of_results += is_result
        if isinstance(result, torch.Tensor):
            self._results.append(weakref.ref(result))
        # A recurrent module runs all time steps in C++: it is one operation of the script, which is not small.
        what = None if sys._getframe(2).f_code in _WHOLE else func  # noqa: SLF001
        known = self._quickest.setdefault((part, what, _elements(args[0] if args else None), _elements(result)), [0, 0])
        known[0] += 1
        if not waits and (known[0] == 1 or nanoseconds < known[1]):
            known[1] = nanoseconds

    def _code_ran(self, func: Any, now: int) -> None:
        """Handle that code of the script ran until now, before this operation or, for None, before it was counted no more."""
        known = self._between.setdefault((self._times.part, self._newest, func), [0, now - self._since])
        known[0] += 1
        known[1] = min(known[1], now - self._since)

    def _read(self, part: StepPart, waited: int) -> None:
        line = self._line()
        for counts in (self._reads[part], *([] if line is None else [self._lines.setdefault(line, [0, 0])])):
            counts[0] += 1
            counts[1] += waited

    def _line(self) -> Entry | None:
        """Return the innermost line of the script, at a fraction of the cost of `script_entry`."""
        frame: FrameType | None = sys._getframe(3)  # noqa: SLF001 - what `inspect.currentframe` is
        while frame is not None:
            file = frame.f_code.co_filename
            if file not in self._files:
                self._files[file] = is_of_script(file)
            if self._files[file]:
                return file, frame.f_lineno, frame.f_code.co_name
            frame = frame.f_back
        return None

    def _watch_synchronize(self) -> None:
        original = torch.cuda.synchronize

        @functools.wraps(original)
        def synchronize(*args: Any, **kwargs: Any) -> None:
            began = perf_counter_ns()
            try:
                original(*args, **kwargs)
            finally:
                if self._is_counting and self._times.part in self._reads:
                    self._read(self._times.part, perf_counter_ns() - began)

        torch.cuda.synchronize = synchronize
        self._synchronize = original, synchronize

    def stop(self) -> None:
        """End the present step without a count."""
        self._is_counting = False
        self.leave()
        if self._synchronize is not None:
            original, ours = self._synchronize
            if torch.cuda.synchronize is ours:
                torch.cuda.synchronize = original
            self._synchronize = None

    def _counted(self) -> OperationsCounted:
        parts = []
        for part in _PARTS:
            kinds = [(what is None, *known) for (each, what, *_), known in self._quickest.items() if each is part]
            is_small = [not is_whole and quickest <= _LARGE_NS for is_whole, _, quickest in kinds]
            starting = [min(quickest, _STARTING_NS) if each else 0 for (*_, quickest), each in zip(kinds, is_small)]
            small = [count * (start + _AROUND_NS) for (_, count, _), start in zip(kinds, starting) if start]
            large = [count * (quickest - start) for (_, count, quickest), start in zip(kinds, starting)]
            long = [
                times * least
                for (each, *_), (times, least) in self._between.items()
                if each is part and least > _LARGE_NS
            ]
            reads, waited = self._reads[part]
            seconds = [each / self._steps / 1e9 for each in (sum(small), sum(large), waited, sum(long))]
            parts.append(
                PartOperations(part, sum(count for is_whole, count, _ in kinds if not is_whole), reads, *seconds)
            )
        longest = sorted(self._lines.items(), key=lambda each: each[1][::-1], reverse=True)[:_LINES]
        lines = [ReadLine(line_at(*line), reads, waited / 1e9) for line, (reads, waited) in longest]
        return OperationsCounted(
            self._clock.at(),
            self._counter.steps,
            self._steps,
            self._graph,
            tuple(parts),
            tuple(lines),
            self._calls,
            self._reads_of_results,
        )


def _elements(value: Any) -> int:
    return value.numel() if isinstance(value, torch.Tensor) else -1


def _waits(kind: int, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> bool:
    """Return whether the host waits for the device in this operation."""
    if kind == _COPY:
        # `copy_` is given the destination first.
        source = args[1] if len(args) > 1 and isinstance(args[1], torch.Tensor) else args[0]
        non_blocking = kwargs.get("non_blocking") or (len(args) > 2 and args[2] is True)
        return source.is_cuda and result.is_cpu and not non_blocking
    if kind == _INDEX and not any(each is not None and each.dtype in _MASKS for each in args[1]):
        return False
    return bool(args[0].is_cuda)
