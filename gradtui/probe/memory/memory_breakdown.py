"""Compute the memory breakdown at the end of a phase. Each storage counts once, under the first category that claims it."""

from __future__ import annotations

import weakref
from collections.abc import Container, Iterable, Mapping, Sequence
from operator import is_
from typing import Any, NamedTuple

import torch
from torch import distributed
from torch.optim import Optimizer

from gradtui.dataclass import dataclass
from gradtui.probe.autograd import OUTSIDE, GraphSummary
from gradtui.probe.memory.memory_counters import device_allocator
from gradtui.probe.model import ModuleTree, StorageCount, bucket_bytes, buffers_of, state_tensors
from gradtui.probe.samplers.cpu_memory import MallocAllocator, MemoryCounter, Reading, ResidentAllocator
from gradtui.protocol.device_memory import DeviceMemory
from gradtui.protocol.vocabulary import MemoryBytes

_OF_PROCESS = (MallocAllocator, ResidentAllocator)
"""Counters of all that the process allocates, from the moment when they were made."""


class Peak(NamedTuple):
    """The highest total between two readings."""

    bytes: int | None
    is_exact: bool
    """False for a lower bound."""
    devices: tuple[DeviceMemory, ...] = ()
    """Each device of several; `bytes` is then an upper bound, if it is exact."""


@dataclass(frozen=True)
class PartialBreakdown:
    """A memory breakdown without what autograd keeps: sizes in bytes, and storages by their keys."""

    parameters: int
    buffers: int
    gradients: int
    optimizer_state: int
    on_host: int
    """Bytes of these on the host while the models are on a device."""
    claimed: frozenset[int]
    """The storages of the above."""
    batches: Mapping[int, int]
    """Key -> bytes of the storages of the batches."""
    total: int | None
    on_device: bool
    buckets: int = 0
    """Bytes of the buckets of data-parallel wrappers."""

    def divided(self, kept: GraphSummary | None, *, knows_batches: bool = True) -> MemoryBytes:
        """Return the complete breakdown. `kept` is what autograd keeps; None leaves the bytes saved for backward unknown."""
        saved = _unclaimed(kept.storages, self.claimed) if kept is not None else None
        input_ = _unclaimed(self.batches, kept.storages if kept is not None else ()) if knows_batches else None
        taken = self.claimed.union(self.batches, kept.storages if kept is not None else ())
        copies = _unclaimed(kept.offloaded, taken) if kept is not None else 0
        own = self.parameters + self.buffers + self.gradients + self.optimizer_state + self.buckets
        known = own + (saved or 0) + (input_ or 0) + (0 if self.on_device else copies)
        return MemoryBytes(
            self.parameters,
            self.buffers,
            self.gradients,
            self.optimizer_state,
            saved,
            self.total - known if self.total is not None else None,
            self.total,
            input_,
            self.on_host + copies,
            self.on_device,
            self.buckets,
        )


def _unclaimed(storages: Mapping[int, int], claimed: Container[int]) -> int:
    return sum(size for key, size in storages.items() if key not in claimed)


class MemoryAccountant:
    """Computes the bytes of every category, and caches between two calls what cannot have changed."""

    def __init__(self, cpu: MemoryCounter) -> None:
        self.allocator = cpu
        self.devices: tuple[torch.device, ...] = (torch.device("cpu"),)
        """The devices whose tensors count: all CUDA devices that hold parameters, or a single one of another type. The one
        with most of the models' bytes comes first."""
        self._cpu = cpu
        self._before: Reading = cpu.read()
        self._counted: list[weakref.ref[Optimizer]] = []
        """The optimizers whose state was counted last."""
        self._entries: tuple[list[int], int] | None = None
        """The number of entries of each, and of the states that wait; None if they must be counted."""
        self._optimizer_state = 0, 0
        """The bytes of that state."""

    @property
    def total(self) -> int | None:
        """The total at the beginning of the current phase."""
        return self._before.total

    @property
    def device_index(self) -> int:
        """Index of the CUDA device that holds most of the models' bytes; 0 as long as there is none."""
        return self.devices[0].index or 0

    @property
    def device_indexes(self) -> tuple[int, ...]:
        """Indexes of the devices."""
        return tuple(device.index or 0 for device in self.devices)

    def follow(self, tree: ModuleTree) -> str | None:
        """Read totals from the devices that hold the models. Return the name of the first if they have changed, else None."""
        before, self.devices = self.devices, _devices_of(tree)
        if set(before) == set(self.devices):
            return None
        home = self.devices[0]
        self.allocator = self._cpu if home.type == "cpu" else device_allocator(self.devices)
        # Do not read yet: the first reading returns the peak since the process began, which is the peak of loading.
        self._before, self._entries = Reading(None, None), None
        return torch.cuda.get_device_name(home) if home.type == "cuda" else home.type

    def excluded_storages(self, tree: ModuleTree) -> dict[int, int]:
        """Return the keys of storages of parameters and buffers, which autograd may save without their being activations.

        Each key maps to the index of the owner of a frozen parameter, or OUTSIDE for all others.
        """
        count = self._count()
        count.add([tensor for _, tensor in tree.live_parameters()])
        count.add([buffer for _, buffer in buffers_of(tree)])
        excluded = dict.fromkeys(count.seen, OUTSIDE)
        for index, tensor in tree.live_parameters():
            if not tensor.requires_grad:
                count.seen.clear()
                count.add((tensor,))
                excluded.update(dict.fromkeys(count.seen, tree.owners[index]))
        return excluded

    def _count(self) -> StorageCount:
        return StorageCount(self.allocator.device_type, indexes={device.index for device in self.devices})

    def begin_phase(self) -> Peak:
        """Begin a phase, whose peak counts from here. Return the peak since the previous reading."""
        reading = self.allocator.read()
        ended = self._peak(reading)
        self._before = reading
        return ended

    def take(
        self,
        tree: ModuleTree,
        optimizers: Iterable[Optimizer],
        batches: Iterable[Any] = (),
        *,
        stepped: bool,
        waiting: Sequence[object] = (),
    ) -> tuple[PartialBreakdown, Peak]:
        """Return the partial breakdown and the phase's peak.

        Args:
            tree: the module tree.
            optimizers: the living optimizers.
            batches: the storages of the step's batches.
            stepped: an optimizer has just run, so its state is counted again.
            waiting: optimizer state that is kept outside of the optimizers.

        If the allocator records no peak, the peak is the larger total of the phase's two ends: a lower bound.
        """
        reading = self.allocator.read()
        home = self.allocator.device_type
        count = self._count()
        optimizers = list(optimizers)
        held = _parameters(tree, optimizers)
        grads = [gradient for tensor in held if tensor.is_leaf and (gradient := tensor.grad) is not None]
        parameters = count.add(held)
        buffers = count.add([buffer for _, buffer in buffers_of(tree)])
        gradients = count.add(grads)
        state, on_host = self._state_bytes(optimizers, waiting, count, stepped=stepped)
        if home != "cpu":
            on_host += StorageCount("cpu").add([*held, *grads])
        claimed, given = frozenset(count.seen), count.storages(batches)
        reading = self._at_least(parameters + buffers + gradients + state + _unclaimed(given, claimed), reading)
        partial = PartialBreakdown(
            parameters, buffers, gradients, state, on_host, claimed, given, reading.total, home != "cpu", _buckets(tree),
        )  # fmt: skip
        peak = self._peak(reading)
        self._before = reading
        return partial, peak

    def _at_least(self, held: int, reading: Reading) -> Reading:
        """Return the reading, and let the counter go on from `held` where it has counted less than these tensors have.

        Tensors from before the counter (`gradtui.watch`) or of a file that is mapped are not counted, and what was allocated
        before and is freed since makes the total smaller.
        """
        counter = self.allocator
        if reading.total is None or reading.total >= held or not isinstance(counter, _OF_PROCESS):
            return reading
        counter.leave_out(Reading(held, None))
        return counter.read()

    def _peak(self, reading: Reading) -> Peak:
        if reading.since_last:
            return Peak(reading.peak, True, reading.devices)
        is_known = reading.peak is not None and self._before.peak is not None and not reading.devices
        if is_known and (reading.peak or 0) > (self._before.peak or 0):
            # The peak of the run rose within this phase, so it is this phase's peak.
            return Peak(reading.peak, True)
        known = (total for total in (self._before.total, reading.total) if total is not None)
        return Peak(max(known, default=None), False, reading.devices)

    def _state_bytes(
        self, optimizers: list[Optimizer], waiting: Sequence[object], count: StorageCount, *, stepped: bool
    ) -> tuple[int, int]:
        """Return the bytes on the models' device and, if that is not the CPU, on the host."""
        entries = [len(optimizer.state) for optimizer in optimizers], len(waiting)
        # By identity: references are equal if the objects are, by an `__eq__` that the script may have defined.
        are_same = entries == self._entries and all(map(is_, [reference() for reference in self._counted], optimizers))
        if are_same and not stepped:
            return self._optimizer_state
        states = [*(optimizer.state for optimizer in optimizers), *waiting]
        tensors = state_tensors(*states)
        size = count.add(tensors)
        host = 0
        if self.allocator.device_type != "cpu":
            # An optimizer counts its steps in one-element tensors, which stay on the host by default.
            host = StorageCount("cpu").add(tensor for tensor in tensors if tensor.dim() > 0)
        self._counted, self._entries = [weakref.ref(optimizer) for optimizer in optimizers], entries
        self._optimizer_state = size, host
        return size, host


def _devices_of(tree: ModuleTree) -> tuple[torch.device, ...]:
    """Return the devices that hold the models, most bytes first. Offloaded parameters, on `meta`, are on none of them."""
    sizes: dict[torch.device, int] = {}
    for index, tensor in tree.live_parameters():
        sizes[tensor.device] = sizes.get(tensor.device, 0) + tree.parameters[index].bytes
    found = sorted(sizes, key=lambda device: (device.type == "meta", -sizes[device]))
    on_cuda = [device for device in found if device.type == "cuda"]
    if found and found[0].type == "meta" and torch.cuda.is_initialized():
        # All are offloaded: each comes to a device for its module's call.
        on_cuda = [torch.device("cuda", torch.cuda.current_device())]
    return tuple(on_cuda or found[:1]) or (torch.device("cpu"),)


def _buckets(tree: ModuleTree) -> int:
    # Only a wrapper in a process group has any, and most runs have no group.
    is_distributed = distributed.is_available() and distributed.is_initialized()
    return sum(bucket_bytes(tree)) if is_distributed else 0


def _parameters(tree: ModuleTree, optimizers: Iterable[Optimizer]) -> list[torch.Tensor]:
    found = [tensor for _, tensor in tree.live_parameters()]
    known = set(map(id, found))
    groups = [group["params"] for optimizer in optimizers for group in optimizer.param_groups]
    return found + [tensor for group in groups for tensor in group if id(tensor) not in known]
