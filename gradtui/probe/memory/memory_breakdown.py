"""Who holds how many bytes, at the end of a phase. Each storage counts once, under the first category that claims it."""

from __future__ import annotations

import weakref
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.optim import Optimizer

from gradtui.probe.autograd import OUTSIDE, GraphSummary
from gradtui.probe.memory.memory_counters import MemoryCounter, Reading, device_allocator
from gradtui.probe.memory.phase_peaks import Peak
from gradtui.probe.model import ModuleTree, StorageCount, buffers_of, state_tensors
from gradtui.protocol.vocabulary import MemoryBytes


@dataclass(frozen=True)
class PartialBreakdown:
    """What a ledger has found before it is known what autograd keeps: sizes in bytes, and storages by their keys."""

    parameters: int
    buffers: int
    gradients: int
    optimizer_state: int
    on_host: int
    """What of these lives on the host while the models' home is a device."""
    claimed: frozenset[int]
    """The storages of the above."""
    batches: Mapping[int, int]
    """Key -> bytes of those of the batches."""
    total: int | None
    on_device: bool

    def divided(self, kept: GraphSummary | None, *, knows_batches: bool = True) -> MemoryBytes:
        """All of it, with what autograd keeps; None where that is not known."""
        saved = _unclaimed(kept.storages, self.claimed) if kept is not None else None
        input_ = _unclaimed(self.batches, kept.storages if kept is not None else ()) if knows_batches else None
        taken = self.claimed.union(self.batches, kept.storages if kept is not None else ())
        copies = _unclaimed(kept.offloaded, taken) if kept is not None else 0
        own = self.parameters + self.buffers + self.gradients + self.optimizer_state
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
        )


def _unclaimed(storages: Mapping[int, int], claimed: Container[int]) -> int:
    return sum(size for key, size in storages.items() if key not in claimed)


class _StateKey(NamedTuple):
    """The optimizers whose state was counted, and how many entries each had."""

    optimizers: list[weakref.ref[Optimizer]]
    entries: list[int]
    waiting: int

    def is_same(self, other: _StateKey) -> bool:
        """Whether these are the same objects with as many entries."""
        here, there = ([reference() for reference in key.optimizers] for key in (self, other))
        return [*map(id, here)] == [*map(id, there)] and None not in here and self[1:] == other[1:]


class MemoryAccountant:
    """Takes the bytes of every category, and remembers between two takings what cannot have changed."""

    def __init__(self, cpu: MemoryCounter) -> None:
        self.allocator = cpu
        self.device_index = 0
        """Torch's number of the CUDA device that most of the models' bytes are on; 0 as long as there is none."""
        self.home = torch.device("cpu")
        """Where most of the models' bytes are: only what is there is counted."""
        self._cpu = cpu
        self._before: Reading = cpu.read()
        self._optimizer_state: tuple[_StateKey, tuple[int, int]] | None = None

    @property
    def total(self) -> int | None:
        """The total at the beginning of the present phase."""
        return self._before.total

    def follow(self, tree: ModuleTree) -> str | None:
        """Take totals from where most of the models' bytes are; the device's name if that has changed."""
        sizes: dict[torch.device, int] = {}
        for index, tensor in tree.live_parameters():
            sizes[tensor.device] = sizes.get(tensor.device, 0) + tree.parameters[index].bytes
        home = max(sizes, key=lambda device: sizes[device], default=torch.device("cpu"))
        self.device_index = (home.index or 0) if home.type == "cuda" else 0
        if home == self.home:
            return None
        self.home = home
        self.allocator = self._cpu if home.type == "cpu" else device_allocator(home)
        # Not read yet: the first reading tells the peak since the process began, which is that of loading.
        self._before, self._optimizer_state = Reading(None, None), None
        return torch.cuda.get_device_name(home) if home.type == "cuda" else home.type

    def excluded_storages(self, tree: ModuleTree) -> dict[int, int]:
        """Storages of parameters and buffers, which autograd may save without their being activations, by their keys.

        With the place of the owner of a frozen one, OUTSIDE for all others.
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
        return StorageCount(self.allocator.device_type, index=self.home.index)

    def begin_phase(self) -> Peak:
        """A phase begins: its peak is counted from here. The peak since the reading before."""
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
        waiting: Iterable[object] = (),
    ) -> tuple[PartialBreakdown, int | None, bool]:
        """What is held now, the phase's peak, and whether that peak is exact.

        `batches` are the storages of the step's batches; `stepped` says that an optimizer has just run, so its state is
        looked at anew. `waiting` is optimizer state that is kept outside of the optimizers. Where the allocator keeps no
        peak of its own, the peak is the larger of the phase's two ends: a lower bound.
        """
        reading = self.allocator.read()
        home = self.allocator.device_type
        count = self._count()
        optimizers = list(optimizers)
        held = _parameters(tree, optimizers)
        grads = [gradient for tensor in held if (gradient := tensor.grad) is not None]
        parameters = count.add(held)
        buffers = count.add([buffer for _, buffer in buffers_of(tree)])
        gradients = count.add(grads)
        state, on_host = self._state_bytes(optimizers, list(waiting), count, stepped=stepped)
        if home != "cpu":
            host = StorageCount("cpu")
            on_host += host.add(held) + host.add(grads)
        taking = PartialBreakdown(
            parameters, buffers, gradients, state, on_host, frozenset(count.seen), count.storages(batches),
            reading.total, home != "cpu",
        )  # fmt: skip
        peak, exact = self._peak(reading)
        self._before = reading
        return taking, peak, exact

    def _peak(self, reading: Reading) -> Peak:
        if reading.since_last:
            return reading.peak, True
        known = [total for total in (self._before.total, reading.total) if total is not None]
        ends = max(known, default=None)
        if reading.peak is not None and self._before.peak is not None and reading.peak > self._before.peak:
            # The run's highest point was raised within this phase, so it is this phase's peak.
            return reading.peak, True
        return ends, False

    def _state_bytes(
        self, optimizers: list[Optimizer], waiting: list[object], count: StorageCount, *, stepped: bool
    ) -> tuple[int, int]:
        """Bytes at the models' home and, if that is a device, on the host."""
        key = _StateKey(
            [weakref.ref(optimizer) for optimizer in optimizers], [len(o.state) for o in optimizers], len(waiting)
        )
        if not stepped and self._optimizer_state is not None and self._optimizer_state[0].is_same(key):
            return self._optimizer_state[1]
        states = [*(optimizer.state for optimizer in optimizers), *waiting]
        size = count.add(tensor for state in states for tensor in state_tensors(state))
        host = 0
        if self.allocator.device_type != "cpu":
            # An optimizer counts its steps in tensors of one element, which stay on the host by default.
            tensors = (tensor for state in states for tensor in state_tensors(state))
            host = StorageCount("cpu").add(tensor for tensor in tensors if tensor.dim() > 0)
        self._optimizer_state = (key, (size, host))
        return size, host


def _parameters(tree: ModuleTree, optimizers: Iterable[Optimizer]) -> list[torch.Tensor]:
    """The parameters of the models, and what else the optimizers own."""
    found = [tensor for reference in tree.parameter_refs if (tensor := reference()) is not None]
    known = set(map(id, found))
    groups = [group["params"] for optimizer in optimizers for group in optimizer.param_groups]
    return found + [tensor for group in groups for tensor in group if id(tensor) not in known]
