"""Repeat the operations of a recorded forward on tensors without data, and read what autograd saves. Any thread.

The operations run on the device "meta", where tensors have a shape and no memory (PyTorch: torch.device "meta"). Autograd
records them as it would for a script that is written as the plan says. No code of the script runs again, and nothing of the
run is read or written: not its tensors, nor its random generators.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import torch

from gradtui.planner.lifetimes import freed_after, numbers_in
from gradtui.planner.live_bytes import LiveBytes
from gradtui.planner.work import floating_point_operations, gradients_of
from gradtui.probe.torch_private.private_names import leaf_of, number_of, saved_data, saved_tensors, sequence_number
from gradtui.protocol.operations import Operation, OperationsRecorded, RecordedTensor, TensorNumber, TorchConstant

_META = torch.device("meta")


@dataclass(frozen=True)
class Plan:
    """What trains and what is checkpointed."""

    trains: frozenset[int]
    """Indexes of the parameters that require a gradient."""
    checkpointed: frozenset[int] = frozenset()
    """Indexes of the modules that gradtui checkpoints, each with all modules in it."""


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
    work: int = 0
    """Floating-point operations of the matrix products, convolutions and attention in forward and backward."""


@dataclass(frozen=True)
class Peaks:
    """The most bytes that are alive in the repeated operations of each phase, without parameters and buffers."""

    forward: int
    backward: int
    """With the gradients of the parameters."""


class Replay:
    """Repeats one recorded step under any number of plans.

    Args:
        recorded: the step. It must have operations.
        subtrees: the number of modules in each module's subtree, with itself, in the order of their indexes.
    """

    def __init__(self, recorded: OperationsRecorded, subtrees: Sequence[int]) -> None:
        self._recorded = recorded
        self._subtrees = subtrees

    def under(self, plan: Plan) -> Replayed:
        """Return what autograd does under a plan."""
        with torch.enable_grad():
            return _Run(self._recorded, plan, self._regions(plan.checkpointed)).result(self._loose)

    def peaks(self, plan: Plan) -> Peaks | None:
        """Repeat forward and backward, and return the most bytes that were alive.

        What is between the models and the loss is left out, and how long Python code holds a tensor is an estimate (see
        `freed_after`): compare peaks with each other. None if backward cannot be repeated, or with checkpointed regions.
        """
        regions = self._regions(plan.checkpointed)
        if max(regions, default=-1) >= 0:
            return None
        run = _Run(self._recorded, plan, regions, LiveBytes())
        with torch.enable_grad():
            return run.peaks(self._freed_after)

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
        return freed_after(self._recorded, self._subtrees)

    def _regions(self, checkpointed: Collection[int]) -> list[int]:
        """Return for each operation the number of the checkpointed call that contains it, -1 if there is none.

        The modules of a call are one stretch of operations.
        """
        within = {
            module: top
            for top in sorted(checkpointed, reverse=True)
            for module in range(top, top + self._subtrees[top])
        }
        regions: list[int] = []
        number, before = -1, (-1, -1)
        for operation in self._recorded.operations:
            top = within.get(operation.module, -1)
            here = (top, -1) if top >= 0 else (-1, operation.region)
            number += here not in ((-1, -1), before)
            before = here
            regions.append(number if here != (-1, -1) else -1)
        return regions


class _Run:
    """One repetition."""

    def __init__(
        self, recorded: OperationsRecorded, plan: Plan, regions: Sequence[int], live: LiveBytes | None = None
    ) -> None:
        self._recorded, self._plan, self._regions, self._live = recorded, plan, regions, live
        self._tensors: dict[int, torch.Tensor] = {}
        self._known: set[int] = set()
        """Storages of parameters and buffers."""
        self._parameters: dict[int, int] = {}
        """`id()` of a parameter's tensor -> its index."""
        self._bytes: dict[int, int] = {}
        """Bytes of the storages that are larger or smaller in the run than on the device "meta"."""
        self._kept: list[Any] = []
        """Storages by their keys, so that no other storage gets the same key."""
        self._begins: list[int] = []
        """The sequence number before each operation."""
        self._inputs: dict[int, dict[int, None]] = {}
        """The numbers of the tensors from before that each checkpointed call takes."""
        self._saved: dict[int, tuple[int, int]] = {}
        """Storage -> the first operation that saved it, and its bytes."""
        self._loose: frozenset[int] = frozenset()
        self._passed: set[int] = set()
        self._unknown: dict[str, None] = {}
        self._work = 0

    def result(self, loose: Iterable[int]) -> Replayed:
        """Repeat the forward; `loose` are the operations whose results nothing takes."""
        made: dict[int, int] = {}
        for operation, region in zip(self._recorded.operations, self._regions):
            self._begins.append(sequence_number())
            if region >= 0:
                arguments = numbers_in((operation.arguments, operation.keywords))
                taken = (number for number in arguments if made.get(number) != region)
                self._inputs.setdefault(region, {}).update(dict.fromkeys(taken))
            self._repeat(operation, region)
            made |= dict.fromkeys(operation.results, region)
        self._loose = frozenset(
            at
            for at in loose
            if any(self._tensor(number).requires_grad for number in self._recorded.operations[at].results)
        )
        return self._read()

    def peaks(self, freed_after: Sequence[Sequence[int]]) -> Peaks | None:
        """Repeat forward and backward; `freed_after` has the numbers of the tensors that are freed after each operation."""
        live = self._live
        if live is None:
            return None
        for operation, unused in zip(self._recorded.operations, freed_after):
            self._repeat(operation)
            for number in unused:
                self._tensors.pop(number, None)
        forward = live.restart()
        ends = [end for number in self._recorded.ends if (end := self._tensor(number)).requires_grad]
        if ends:
            try:
                with live.of_results():
                    _run_backward(ends)
            except Exception:  # noqa: BLE001 - a backward that has no implementation on this device
                return None
        return Peaks(forward, live.peak)

    def _repeat(self, operation: Operation, within: int = -1) -> None:
        if not operation.name:
            results = [_bridge([self._tensor(each.number) for each in operation.arguments], self._recorded, operation)]
            self._passed.update(number for number in operation.results if results[0].requires_grad)
        else:
            try:
                with torch.set_grad_enabled(operation.records):
                    arguments = self._given(operation.arguments)
                    keywords = {name: self._given(value) for name, value in operation.keywords}
                    result = _function(operation.name)(*arguments, **keywords)
                    results = list(_tensors(result))
                    self._count(operation, arguments, result, within)
            except Exception:  # noqa: BLE001 - an operation that has no implementation on this device, or needs data
                results = self._without(operation)
        for number, tensor in zip(operation.results, results):
            self._take(number, tensor)

    def _count(self, operation: Operation, arguments: Sequence[Any], result: Any, within: int) -> None:
        size = floating_point_operations(_function(operation.name), arguments, result)
        if size:
            again = within >= 0 and any(each.requires_grad for each in _tensors(result))
            self._work += size * (1 + again + (gradients_of(arguments) if operation.records else 0))

    def _without(self, operation: Operation) -> list[torch.Tensor]:
        """Return the recorded results of an operation that cannot be repeated."""
        arguments = [self._tensor(number) for number in numbers_in((operation.arguments, operation.keywords))]
        recorded = [self._recorded.tensors[number] for number in operation.results]
        passes = operation.records and any(argument.requires_grad for argument in arguments)
        if passes and any(_dtype(each).is_floating_point or _dtype(each).is_complex for each in recorded):
            self._unknown[operation.name] = None
            return [_bridge(arguments, self._recorded, operation, at) for at in range(len(recorded))]
        return [_empty(each) for each in recorded]

    def _take(self, number: int, tensor: torch.Tensor) -> None:
        self._tensors[number] = tensor
        storage, size = tensor.untyped_storage(), self._recorded.tensors[number].bytes
        if self._live is not None:
            self._live.add(tensor, size)
        elif storage.nbytes() != size:
            self._bytes[storage._cdata] = size  # noqa: SLF001 - the identity of a storage
            self._kept.append(storage)

    def _tensor(self, number: int) -> torch.Tensor:
        found = self._tensors.get(number)
        if found is None:
            recorded = self._recorded.tensors[number]
            found = self._tensors[number] = _empty(recorded)
            if recorded.parameter >= 0 or recorded.is_buffer:
                self._known.add(found.untyped_storage()._cdata)  # noqa: SLF001
            if self._live is not None:
                self._live.leave_out(found)
            if recorded.parameter >= 0:
                self._parameters[id(found)] = recorded.parameter
            if recorded.requires_grad or recorded.parameter in self._plan.trains:
                found.requires_grad_()
        return found

    def _given(self, value: Any) -> Any:
        if isinstance(value, TensorNumber):
            return self._tensor(value.number)
        if isinstance(value, TorchConstant):
            return _META if value.name == "device" else getattr(torch, value.name)
        if isinstance(value, tuple):
            return [self._given(each) for each in value]
        return value

    def _read(self) -> Replayed:
        """Walk the graph from the tensors from which the loss was computed."""
        ends = [self._tensor(end) for end in self._recorded.ends]
        waiting = [end.grad_fn for end in ends if end.grad_fn is not None]
        leaves = {id(end) for end in ends if end.requires_grad and end.grad_fn is None}
        seen = set(waiting)
        regions: set[int] = set()
        while waiting:
            node = waiting.pop()
            leaf = leaf_of(node)
            if leaf is not None:
                leaves.add(id(leaf))
                continue
            at = self._operation_of(node)
            if self._regions[at] >= 0:
                regions.add(self._regions[at])
            else:
                self._keep([data for saved in saved_tensors(node) if (data := saved_data(saved)) is not None], at)
            following = {each for each, _ in node.next_functions if each is not None} - seen
            seen |= following
            waiting += following
        for region in regions:
            self._keep(map(self._tensor, self._inputs[region]), self._regions.index(region))
        return self._result(frozenset(self._parameters[leaf] for leaf in leaves & self._parameters.keys()))

    def _operation_of(self, node: Any) -> int:
        return max(0, bisect_right(self._begins, number_of(node)) - 1)

    def _keep(self, tensors: Iterable[torch.Tensor], at: int) -> None:
        """Count the storages of tensors that operation `at` has saved."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            key = storage._cdata  # noqa: SLF001
            if tensor.device == _META and key not in self._known:
                first = at, self._bytes.get(key, storage.nbytes())
                self._saved[key] = min(self._saved.get(key, first), first)

    def _result(self, reached: frozenset[int]) -> Replayed:
        by_module: dict[int, int] = {}
        for at, size in self._saved.values():
            module = self._recorded.operations[at].module
            by_module[module] = by_module.get(module, 0) + size
        total = sum(by_module.values())
        return Replayed(
            total, by_module, reached, self._loose, frozenset(self._passed), tuple(self._unknown), self._work
        )


class _Dependence(torch.autograd.Function):
    """A result that depends on tensors, and for which autograd saves nothing."""

    @staticmethod
    def forward(ctx: Any, empty: torch.Tensor, *arguments: torch.Tensor) -> torch.Tensor:
        """Return `empty` as a result of the arguments."""
        ctx.like = [(each.shape, each.dtype, each.requires_grad) for each in arguments]
        return empty

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        """Return gradients of the arguments."""
        gradients = (
            torch.empty(shape, dtype=dtype, device=_META) if needs else None for shape, dtype, needs in ctx.like
        )
        return None, *gradients


def _bridge(
    arguments: Sequence[torch.Tensor], recorded: OperationsRecorded, operation: Operation, at: int = 0
) -> torch.Tensor:
    empty = _empty(recorded.tensors[operation.results[at]])
    return _Dependence.apply(empty, *arguments) if any(each.requires_grad for each in arguments) else empty  # type: ignore[no-untyped-call]


def _empty(recorded: RecordedTensor) -> torch.Tensor:
    return torch.empty_strided(recorded.shape, recorded.stride, dtype=_dtype(recorded), device=_META)


def _dtype(recorded: RecordedTensor) -> torch.dtype:
    found: torch.dtype = getattr(torch, recorded.dtype)
    return found


def _tensors(result: Any) -> Iterator[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, (tuple, list)):
        for each in result:
            yield from _tensors(each)


@cache
def _function(name: str) -> Any:
    """Return the operation of a name such as `aten.addmm.default`."""
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _run_backward(ends: Sequence[torch.Tensor]) -> None:
    """Run backward from tensors with gradients of their own size, past the wrappers of `torch.autograd.backward`."""
    engine: Any = torch.autograd.Variable._execution_engine  # noqa: SLF001
    gradients = tuple(map(torch.empty_like, ends))
    engine.run_backward(tuple(ends), gradients, False, False, (), allow_unreachable=True, accumulate_grad=True)
