"""Measure what all ranks of a job must have in common: what trains, what optimizers have, learning rates, bits of replicas.

The viewer of the job compares the measurements of the ranks. Nothing here communicates, and nothing waits for a device.
Training thread.
"""

from __future__ import annotations

import math
import sys
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter_ns

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from gradtui.dataclass import dataclass
from gradtui.probe.frozen import BitSample
from gradtui.probe.model import ModuleTree, optimizer_membership, read_groups
from gradtui.probe.runtime import CheckSchedule, alone
from gradtui.probe.steps import DeviceTimes, ProbeContext
from gradtui.probe.torch_private.communication_hooks import averages_every_step
from gradtui.probe.torch_private.private_names import operations_are_observed
from gradtui.protocol.events import ReplicasMeasured
from gradtui.protocol.ranks import CHECK_EVERY

_MAX_UNDER_WAY = 4
"""Measurements whose bits the device has not copied. At this number the next one is left out."""


@dataclass
class _Replicas:
    """Which tensors of a listing the ranks hold copies of."""

    tree: ModuleTree
    parameters: list[int]
    """Indexes of the parameters that `DistributedDataParallel` keeps equal."""
    buffers: list[tuple[int, int, str]]
    """Of the buffers that no wrapper broadcasts: their index, the index of their module, and their name in it."""


class ReplicaChecks:
    """Emits `ReplicasMeasured` at the steps that `schedule` selects, while the default process group has several ranks."""

    def __init__(self, context: ProbeContext, schedule: CheckSchedule, times: DeviceTimes) -> None:
        self.next_step = sys.maxsize
        """The step after which the next measurement is due. Compared at each step, so it is a plain number."""
        self._schedule, self._times = schedule, times
        self._emit, self._clock, self._view = context.emit, context.clock, context.models
        self._counter = context.counter
        self.hooks = context.hooks
        self.ranks = 1
        """The number of ranks of the default process group."""
        self._newest = 0
        self._replicas: _Replicas | None = None
        self.under_way: deque[tuple[ReplicasMeasured, int, BitSample[int]]] = deque()
        """Measurements without their checksums, how many buffers they report, and the bits on their way to the host."""

    def follow(self, ranks: int) -> None:
        """Set the number of ranks, and begin or cease to measure."""
        self.ranks = ranks
        self.renew()

    def renew(self) -> None:
        """Select the next step again. Called several times a second: the time of a step changes."""
        is_on = self.ranks > 1 and not self.hooks.is_off("replicas")
        self.next_step = self._schedule.next_after(max(self._newest, self._counter.steps)) if is_on else sys.maxsize

    def on_step_post(self, step: int) -> None:
        """Measure after `step`, if it is due. Call it when `next_step` is reached."""
        # Within backward, parameters are not those that the other ranks have after the same number of steps.
        is_due = self._schedule.is_due(step) and step > self._newest and not self.hooks.in_backward
        self._newest = max(self._newest, step)
        try:
            if is_due and len(self.under_way) < _MAX_UNDER_WAY and self._can_measure():
                began = perf_counter_ns()
                self._measure(step)
                self._schedule.record_cost((perf_counter_ns() - began) / 1e9)
        finally:
            self.renew()

    def poll(self) -> None:
        """Emit the measurements whose bits have arrived."""
        while self.under_way and self.under_way[0][2].is_there:
            self._arrived(*self.under_way.popleft())

    def finish(self) -> None:
        """Wait for the device, and emit the measurements under way."""
        for _, _, sample in self.under_way:
            sample.wait()
        self.poll()

    def _can_measure(self) -> bool:
        return not operations_are_observed() and self.hooks.is_alone()

    @alone
    def _measure(self, step: int) -> None:
        tree = self._view.tree
        if not tree.parameters or tree.is_gone():
            return
        if self._replicas is None or self._replicas.tree is not tree:
            self._replicas = _Replicas(tree, *_replicas_in(tree))
        with self._times.own():
            sample = BitSample(self._tensors(self._replicas), few=True, turn=step // CHECK_EVERY)
        optimizers = [each for group in self._view.optimizers_in_use() for each in group]
        numbers = {id(each): number for number, each in enumerate(self._view.live_optimizers())}
        optimizers.sort(key=lambda each: numbers[id(each)])
        owned = {id(each) for optimizer in optimizers for each in optimizer_membership.parameters(optimizer)}
        parameters = [reference() for reference in tree.parameter_refs]
        own = self._view.discovery.optimizers.rates
        rates = [[group.learning_rate for group in groups] for groups in read_groups([*map(own.groups_of, optimizers)])]
        event = ReplicasMeasured(
            self._clock.at(),
            step,
            "".join(["1" if each is not None and each.requires_grad else "0" for each in parameters]),
            "".join(["1" if id(each) in owned else "0" for each in parameters]),
            tuple([tuple([math.nan if rate is None else rate for rate in each]) for each in rates]),
            (),
            listing=tree.listing,
        )
        self.under_way.append((event, len(tree.buffers) if self._replicas.buffers else 0, sample))
        self.poll()

    @staticmethod
    def _tensors(replicas: _Replicas) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield (index, parameter) of parameters, and (-1 - index, buffer) of buffers."""
        tree = replicas.tree
        for index in replicas.parameters:
            parameter = tree.parameter_refs[index]()
            if parameter is not None:
                yield index, parameter
        for index, holder, name in replicas.buffers:
            module = tree.module_refs[holder]()
            buffer = module._buffers.get(name) if module is not None else None  # noqa: SLF001 - as in `storages`
            if buffer is not None:
                yield -1 - index, buffer

    def _arrived(self, event: ReplicasMeasured, buffers: int, sample: BitSample[int]) -> None:
        sums = {key: zlib.crc32(bits.value) for key, bits in sample.bits().items()}
        checksums = tuple(map(sums.get, range(len(event.trainable))))
        of_buffers = tuple(map(sums.get, range(-1, -1 - buffers, -1)))
        self._emit(replace(event, checksums=checksums, buffers=of_buffers))


def _replicas_in(tree: ModuleTree) -> tuple[list[int], list[tuple[int, int, str]]]:
    """Return the indexes of parameters, and the places of buffers, that all ranks hold copies of."""
    parameters: set[int] = set()
    buffers: list[tuple[int, int, str]] = []
    for _, wrapper in tree.live_modules():
        if not isinstance(wrapper, DistributedDataParallel) or not _keeps_all_ranks_equal(wrapper):
            continue
        ignored = set(wrapper.parameters_to_ignore)
        parameters.update(tree.listed(each for name, each in wrapper.module.named_parameters() if name not in ignored))
        if not wrapper.broadcast_buffers:
            buffers += _places_of_buffers(tree, wrapper.module, ignored)
    return sorted(parameters), buffers


def _keeps_all_ranks_equal(wrapper: DistributedDataParallel) -> bool:
    """Return whether a wrapper averages over all ranks of the job. Of a part of them, each part has its own values."""
    is_over_all = distributed.get_world_size(wrapper.process_group) == distributed.get_world_size()
    return is_over_all and averages_every_step(wrapper)


def _places_of_buffers(tree: ModuleTree, root: nn.Module, ignored: set[str]) -> Iterator[tuple[int, int, str]]:
    paths = {tree.index_of(module): path for path, module in root.named_modules()}
    for index, buffer in enumerate(tree.buffers):
        path = paths.get(buffer.module)
        name = buffer.path.rpartition(".")[2]
        if path is not None and (f"{path}.{name}" if path else name) not in ignored:
            yield index, buffer.module, name
