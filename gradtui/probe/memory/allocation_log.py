"""Log every storage that is allocated and freed while a step runs, operation by operation.

CPU tensors have no allocator that records a peak, so gradtui observes the operations themselves, on single steps that are
requested or sampled: a `TorchDispatchMode` receives the outputs of each one, and a weak reference reports when a storage is
freed. What a kernel allocates and frees while it runs (a convolution's workspace) is not observed. Runs on the training
thread, which on the CPU also runs backward.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from time import perf_counter_ns
from typing import Any

import torch

from gradtui.dataclass import dataclass
from gradtui.probe.autograd import OperationLog
from gradtui.probe.torch_private.private_names import is_wrapper, no_torch_function
from gradtui.protocol.vocabulary import Phase
from gradtui.system.signal_handlers import raised_by_handler

MAX_EVENTS = 400_000
"""Maximum number of allocations and frees logged in one step; beyond that the log ends early and `is_whole` is False."""

_NO_TENSORS = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.Size})


@dataclass(slots=True)
class Allocation:
    """One storage. `born` and `died` are indices into the curve; `died` is -1 while it is alive."""

    nbytes: int
    module: int
    """The index of the module whose operation made it."""
    made: bool
    """Whether a logged operation made it. Otherwise it existed before, and `born` is where it was first observed."""
    born: int
    died: int = -1
    kind: str | None = None
    """The memory category it belongs to, if known."""


PhaseMark = tuple[int, Phase]
"""The index on the curve at which a phase begins, and the phase."""


@dataclass
class StepCourse:
    """The course of memory within one step."""

    curve: list[int]
    """Bytes after each change, from those before the first one on."""
    modules: list[int]
    """The module that was running at each change."""
    allocations: list[Allocation]
    marks: list[PhaseMark]
    blocks: list[int] | None = None
    """The curve of the CUDA allocator's blocks; None on the CPU."""


class _Followed(weakref.ref[Any]):
    """A weak reference to a living storage, with its entry in the log."""

    __slots__ = ("allocation", "key")
    allocation: Allocation
    key: int


class AllocationLog(OperationLog):
    """Records live bytes on one device type after every operation that changed them.

    `total` is what was allocated when the log began; `module_now` returns the module whose code is running.
    """

    def __init__(self, device_type: str, total: int, module_now: Callable[[], int]) -> None:
        super().__init__()
        self._curve: list[int] = [total]
        self.modules: list[int] = [module_now()]
        """The module that was running at each change."""
        self.allocations: list[Allocation] = []
        self.failure: Exception | None = None
        """An exception of gradtui's own code. Nothing is logged after it."""
        self.is_whole = True
        """False if there were more events than `MAX_EVENTS`."""
        self._device_type = device_type
        self._on_cpu = device_type == "cpu"
        self._module_now = module_now
        # Python discards what a weak reference's callback raises, a Ctrl+C too. `list.append` cannot be interrupted by one.
        self._freed: list[weakref.ref[Any]] = []
        self._when_freed = self._freed.append
        self._live: dict[int, _Followed] = {}

    @property
    def curve(self) -> list[int]:
        """Bytes after each change."""
        self._log_freed()
        return self._curve

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation, and log the storages that it has made."""
        self.operations += 1
        began = perf_counter_ns()
        self._look_at(args, is_new=False)
        if kwargs:
            self._look_at(kwargs.values(), is_new=False)
        called = perf_counter_ns()
        result = self._call(func, args, kwargs)
        returned = perf_counter_ns()
        # An in-place operation returns the argument that it writes.
        if result is not None and not (args and result is args[0]):
            self._look_at((result,), is_new=True)
        self._record(func, args, kwargs, result)
        self.own_ns += perf_counter_ns() - returned + called - began
        return result

    def _look_at(self, values: Iterable[Any], *, is_new: bool) -> None:
        """Log the arguments or results of an operation. An exception in here never reaches the operation."""
        if self.failure is not None:
            return
        live = self._live
        try:
            if self._freed:
                self._log_freed()
            for value in values:
                kind = type(value)
                if kind is torch.Tensor:
                    try:
                        storage = value.untyped_storage()
                    except (NotImplementedError, RuntimeError):  # sparse tensors have none
                        continue
                    if storage._cdata not in live:  # noqa: SLF001 - as `storage_key`
                        self._add(value, storage, is_new=is_new)
                elif kind not in _NO_TENSORS:
                    with no_torch_function():
                        self._follow_all((value,), is_new=is_new)
        except Exception as error:
            if raised_by_handler(error):
                raise
            self.failure = error

    def know(self, tensor: torch.Tensor, kind: str, module: int) -> None:
        """Set the category and module of a tensor's storage.

        A storage that no operation made counts in the total already, until it is freed.
        """
        allocation = self._follow(tensor, is_new=False)
        if allocation is not None:
            allocation.kind, allocation.module = kind, module

    def measured(self, total: int) -> None:
        """Correct the curve to the allocator's total: it includes what no operation reported (NumPy, loss functions)."""
        if total != self.curve[-1]:
            self._note(total - self.curve[-1], self._module_now())

    def close(self) -> None:
        """Stop logging. The results stay."""
        self._log_freed()
        self._live.clear()

    def _follow_all(self, values: Iterable[Any], *, is_new: bool) -> None:
        for value in values:
            if isinstance(value, torch.Tensor):
                self._follow(value, is_new=is_new)
            elif isinstance(value, (tuple, list)):
                self._follow_all(value, is_new=is_new)

    def _follow(self, tensor: torch.Tensor, *, is_new: bool) -> Allocation | None:
        if self._freed:
            self._log_freed()
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):  # sparse tensors have none
            return None
        known = self._live.get(storage._cdata)  # noqa: SLF001 - as `storage_key`, without asking the tensor twice
        return known.allocation if known is not None else self._add(tensor, storage, is_new=is_new)

    def _add(self, tensor: torch.Tensor, storage: torch.UntypedStorage, *, is_new: bool) -> Allocation | None:
        is_here = tensor.is_cpu if self._on_cpu else tensor.device.type == self._device_type
        if not is_here or (type(tensor) is not torch.Tensor and is_wrapper(tensor)):
            return None
        curve, module = self._curve, self._module_now()
        if len(curve) >= MAX_EVENTS:
            self.is_whole = False
            return None
        allocation = Allocation(storage.nbytes(), module, is_new, len(curve) - (not is_new))
        if is_new:
            curve.append(curve[-1] + allocation.nbytes)
            self.modules.append(module)
        self.allocations.append(allocation)
        followed = _Followed(storage, self._when_freed)
        followed.key, followed.allocation = storage._cdata, allocation  # noqa: SLF001
        self._live[followed.key] = followed
        return allocation

    def _log_freed(self) -> None:
        """Log the storages that were freed since the last call, before a new storage can be at the address of one of them."""
        while self._freed:
            followed = self._freed.pop(0)
            if type(followed) is _Followed and self._live.pop(followed.key, None) is not None:
                followed.allocation.died = len(self._curve)
                self._note(-followed.allocation.nbytes, self._module_now())

    def _note(self, change: int, module: int) -> None:
        if len(self._curve) >= MAX_EVENTS:
            self.is_whole = False
            return
        self._curve.append(self._curve[-1] + change)
        self.modules.append(module)
