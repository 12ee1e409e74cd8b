"""Repeat the operations of a recorded forward on tensors without data, and read what autograd saves. Any thread.

The operations run on the device "meta", where tensors have a shape and no memory (PyTorch: torch.device "meta"). Autograd
records them as it would for a script that is written as the plan says. No code of the script runs again, and nothing of the
run is read or written: not its tensors, nor its random generators.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import field
from functools import cached_property
from typing import Any

import torch

from gradtui.dataclass import dataclass
from gradtui.planner.lifetimes import freed_after, numbers_in
from gradtui.planner.live_bytes import LiveBytes
from gradtui.planner.meta_results import MetaResults
from gradtui.planner.meta_tensors import META, dependent, run_backward
from gradtui.planner.regions import Regions, RepeatedRegion, regions_of
from gradtui.planner.repetition import Plan, Repetition
from gradtui.planner.work import Work
from gradtui.probe.torch_private.private_names import (
    leaf_of,
    number_of,
    running_node,
    saved_data,
    saved_tensors,
    sequence_number,
)
from gradtui.protocol.operations import OperationsRecorded

_MAX_NODES = 1_000
"""More nodes than one operation makes."""

__all__ = ["Peaks", "Plan", "Replay", "Replayed"]


@dataclass(frozen=True)
class Replayed:
    """What autograd does in one forward under a plan. Bytes count each storage once, without parameters and buffers."""

    saved: int
    """Bytes that autograd keeps for backward when the forward is over."""
    by_module: dict[int, int] = field(default_factory=dict)
    """The same by the innermost module whose operation saved them first; -1 outside of the known modules."""
    reached: frozenset[int] = frozenset()
    """Indexes of the parameters that get a gradient."""
    loose: frozenset[int] = frozenset()
    """Operations whose results require a gradient, and which no recorded operation takes, and no loss that was recorded."""
    passed: frozenset[int] = frozenset()
    """Tensors through which a gradient passes, and that were computed outside of the recorded operations."""
    unknown: tuple[str, ...] = ()
    """Names of the operations that could not be repeated, and through which a gradient may pass."""
    growing: int = 0
    """The part of `saved` that is in the storages which were asked about."""
    work_by_call: dict[int, Work] = field(default_factory=dict)
    """The work of forward and backward (see `work_of`) by the innermost call; -1 outside of all calls."""

    regions: int = field(default=0, compare=False)
    """Checkpointed calls. They and the next two say what a plan costs, not what autograd does."""
    repeated: int = field(default=0, compare=False)
    """Those of them that backward repeats."""
    repeated_operations: int = field(default=0, compare=False)
    """Operations in these."""

    @property
    def work(self) -> int:
        """This work together."""
        return sum(each.total for each in self.work_by_call.values())


@dataclass(frozen=True)
class Peaks:
    """The most bytes that are alive in the repeated operations of each phase, without parameters and buffers."""

    forward: int
    begin: int
    """When backward begins."""
    backward: int
    """With the gradients of the parameters."""
    levels: dict[int, int] = field(default_factory=dict)
    """By place: what is alive before its first operation."""
    forward_at: dict[int, int] = field(default_factory=dict)
    """The most bytes that are alive in the forward of each place."""
    backward_at: dict[int, int] = field(default_factory=dict)
    adding: int | None = None
    """`backward` of one that adds to gradients which are there when it begins; None unless it was repeated too."""


class Replay:
    """Repeats one recorded step under any number of plans.

    Args:
        recorded: the step. It must have operations.
        block: in peaks, each storage counts as a multiple of these bytes.
    """

    def __init__(self, recorded: OperationsRecorded, block: int = 1) -> None:
        self._recorded, self._block = recorded, block
        self._results = MetaResults()

    def under(self, plan: Plan, growing: Collection[int] = ()) -> Replayed:
        """Return what autograd does under a plan; `growing` are the numbers of the tensors that `Replayed.growing` counts."""
        with torch.enable_grad(), self._results.entered():
            return _Reading(self._recorded, plan, self._regions(plan), growing).result(self._loose)

    def peaks(self, plan: Plan, places: Sequence[int] = (), *, has_gradients: bool = False) -> Peaks | None:
        """Repeat forward and backward, and return the most bytes that were alive; None if backward cannot be repeated.

        What is between the models and the loss is left out, and how long Python code holds a tensor is an estimate (see
        `freed_after`): compare peaks with each other. `places` has a number for each operation; with it the peaks of each
        number are returned too. With `has_gradients`, backward adds to gradients that are there when it begins.
        """
        live = LiveBytes(self._block)
        run, begins = Repetition(self._recorded, plan, live), list[int]()
        levels: dict[int, int] = {}
        with torch.enable_grad(), self._results.entered():
            for at in self._forward(run, self._regions(plan)):
                begins.append(sequence_number())
                if places:
                    live.place = places[at]
                    levels.setdefault(live.place, live.now)
            loss = dependent(torch.empty((), device=META), [run.tensor(number) for number in self._recorded.ends])
            run.release(self._recorded.ends)
            forward_at = live.peaks
            forward, begin = live.restart(), live.now
            if has_gradients:
                run.make_gradients()
            if places:
                live.find_place = lambda before: _place_in_backward(begins, places, before)
            try:
                with live.entered():
                    run_backward(loss) if loss.requires_grad else None
            except Exception:  # noqa: BLE001 - a backward that has no implementation on this device
                return None
        return Peaks(forward, begin, live.peak, levels, forward_at, live.peaks)

    def _forward(self, run: Repetition, regions: Regions) -> Iterator[int]:
        """Repeat the forward. Yields the index of each operation before it."""
        recorded, freed = self._recorded, self._freed_after
        with ExitStack() as around:
            before = -1
            for at, (operation, region) in enumerate(zip(recorded.operations, regions.of_operation)):
                if region != before:
                    around.close()
                    if region >= 0:
                        stretch, inputs = regions.stretch(region), regions.inputs[region]
                        around.enter_context(RepeatedRegion(run, recorded, stretch, inputs, freed).checkpointed())
                    before = region
                yield at
                run.repeat(operation)
                run.release(freed[at])

    @cached_property
    def _loose(self) -> list[int]:
        """The operations whose results no later operation takes, and from which no loss was computed."""
        needed, found = set(self._recorded.ends), list[int]()
        for at in range(len(self._recorded.operations) - 1, -1, -1):
            operation = self._recorded.operations[at]
            if needed.isdisjoint(operation.results):
                found.append(at)
            needed.update(numbers_in((operation.arguments, operation.keywords)))
        return found

    @cached_property
    def _freed_after(self) -> list[list[int]]:
        return freed_after(self._recorded)

    def _regions(self, plan: Plan) -> Regions:
        return regions_of(self._recorded, plan.checkpointed)


def _place_in_backward(begins: Sequence[int], places: Sequence[int], before: int) -> int:
    node = running_node()
    number = number_of(node) if node is not None else -1
    # The node that accumulates a parameter's gradient has a number above all others.
    if number < begins[0] or number - begins[-1] > _MAX_NODES:
        return before
    return places[bisect_right(begins, number) - 1]


class _Reading:
    """One repetition of a forward whose graph is read."""

    def __init__(self, recorded: OperationsRecorded, plan: Plan, regions: Regions, growing: Collection[int]) -> None:
        self._recorded, self._regions, self._growing = recorded, regions, growing
        self._run = Repetition(recorded, plan)
        self._begins: list[int] = []
        """The sequence number before each operation."""
        self._saved: dict[int, tuple[int, int]] = {}
        """Storage -> the first operation that saved it, and its bytes."""
        self._loose: frozenset[int] = frozenset()
        self._reached: set[int] = set()
        """The checkpointed calls that backward repeats."""

    def result(self, loose: Iterable[int]) -> Replayed:
        """Repeat the forward; `loose` are the operations whose results nothing takes."""
        operations = self._recorded.operations
        for operation, region in zip(operations, self._regions.of_operation):
            self._begins.append(sequence_number())
            self._run.repeat(operation, region)
        self._loose = frozenset(
            at for at in loose if any(self._run.tensor(number).requires_grad for number in operations[at].results)
        )
        return self._read()

    def _read(self) -> Replayed:
        """Walk the graph from the tensors from which the loss was computed."""
        ends = [self._run.tensor(end) for end in self._recorded.ends]
        waiting = [end.grad_fn for end in ends if end.grad_fn is not None]
        leaves = {id(end) for end in ends if end.requires_grad and end.grad_fn is None}
        seen = set(waiting)
        regions = self._reached
        while waiting:
            node = waiting.pop()
            leaf = leaf_of(node)
            if leaf is not None:
                leaves.add(id(leaf))
                continue
            at = self._operation_of(node)
            if self._regions.of_operation[at] >= 0:
                regions.add(self._regions.of_operation[at])
            else:
                kept = map(saved_data, saved_tensors(node, of_this_thread=True))
                self._keep([data for data in kept if data is not None], at)
            following = {each for each, _ in node.next_functions if each is not None} - seen
            seen |= following
            waiting += following
        for region in regions:
            self._keep(map(self._run.tensor, self._regions.inputs[region]), self._regions.stretch(region).start)
        parameters = self._run.parameters
        return self._result(frozenset(parameters[leaf] for leaf in leaves & parameters.keys()))

    def _operation_of(self, node: Any) -> int:
        return max(0, bisect_right(self._begins, number_of(node)) - 1)

    def _keep(self, tensors: Iterable[torch.Tensor], at: int) -> None:
        """Count the storages of tensors that operation `at` has saved."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            key = storage._cdata  # noqa: SLF001 - the identity of a storage
            if tensor.device == META and key not in self._run.known:
                first = at, self._run.bytes.get(key, storage.nbytes())
                self._saved[key] = min(self._saved.get(key, first), first)

    def _result(self, reached: frozenset[int]) -> Replayed:
        by_module: dict[int, int] = {}
        for at, size in self._saved.values():
            module = self._recorded.operations[at].module
            by_module[module] = by_module.get(module, 0) + size
        run = self._run
        growing = {run.tensor(number).untyped_storage()._cdata for number in self._growing}  # noqa: SLF001
        return Replayed(
            sum(by_module.values()),
            by_module,
            reached,
            self._loose,
            frozenset(run.passed),
            tuple(run.unknown),
            sum(size for key, (_, size) in self._saved.items() if key in growing),
            run.work,
            len(self._regions.inputs),
            len(self._reached),
            sum(region in self._reached for region in self._regions.of_operation),
        )
