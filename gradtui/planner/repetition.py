"""Repeat recorded operations on tensors without data. Any thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from gradtui.dataclass import dataclass
from gradtui.planner.lifetimes import numbers_in
from gradtui.planner.live_bytes import LiveBytes
from gradtui.planner.meta_tensors import argument_of, dependent, dtype_of, empty_like, function_of, tensors_in
from gradtui.planner.work import Work, work_of
from gradtui.protocol.operations import Operation, OperationsRecorded, RecordedTensor

_NONE = Work()


@dataclass(frozen=True)
class Plan:
    """What trains and what is checkpointed."""

    trains: frozenset[int]
    """Indexes of the parameters that require a gradient."""
    checkpointed: frozenset[int] = frozenset()
    """Indexes of the modules that gradtui checkpoints, each with all modules in it."""


class Repetition:
    """The tensors of one repetition of a step under a plan.

    Args:
        recorded: the step.
        plan: what trains.
        live: counts the bytes that are alive, if they are to be counted.
        tensors: those that are there already, by their numbers.
    """

    def __init__(
        self,
        recorded: OperationsRecorded,
        plan: Plan,
        live: LiveBytes | None = None,
        tensors: Mapping[int, torch.Tensor] | None = None,
    ) -> None:
        self._recorded, self._plan, self._live = recorded, plan, live
        self._tensors = dict(tensors or {})
        self.known: set[int] = set()
        """Storages of parameters and buffers."""
        self.parameters: dict[int, int] = {}
        """`id()` of a parameter's tensor -> its index."""
        self.bytes: dict[int, int] = {}
        """Bytes of the storages that are larger or smaller in the run than on the device "meta"."""
        self._kept: list[Any] = []
        """Storages by their keys, so that no other storage gets the same key."""
        self.passed: set[int] = set()
        """Tensors that were computed outside of the recorded operations, and through which a gradient passes."""
        self.unknown: dict[str, None] = {}
        """Names of operations that could not be repeated."""
        self.work: dict[int, Work] = {}
        """The work of forward and backward (see `work_of`) by the innermost call; -1 outside of all calls."""

    def beginning_with(self, tensors: Mapping[int, torch.Tensor]) -> Repetition:
        """Return another repetition under the same plan, in which only these tensors are there, by their numbers."""
        return Repetition(self._recorded, self._plan, self._live, tensors)

    def tensor(self, number: int) -> torch.Tensor:
        """Return the tensor of a number; one that no operation has returned yet is made."""
        found = self._tensors.get(number)
        if found is None:
            recorded = self._recorded.tensors[number]
            found = self._tensors[number] = empty_like(recorded)
            if recorded.parameter >= 0 or recorded.is_buffer:
                self.known.add(found.untyped_storage()._cdata)  # noqa: SLF001
            if self._live is not None:
                self._live.leave_out(found)
            if recorded.parameter >= 0:
                self.parameters[id(found)] = recorded.parameter
            if recorded.requires_grad or recorded.parameter in self._plan.trains:
                found.requires_grad_()
        return found

    def make_gradients(self) -> None:
        """Give each parameter that trains a gradient, as an earlier backward does."""
        for tensor in list(self._tensors.values()):
            if id(tensor) in self.parameters and tensor.requires_grad:
                tensor.grad = torch.empty_like(tensor)
                if self._live is not None:
                    self._live.add(tensor.grad)

    def release(self, numbers: Iterable[int]) -> None:
        """Hold these tensors no longer."""
        for number in numbers:
            self._tensors.pop(number, None)

    def repeat(self, operation: Operation, within: int = -1) -> None:
        """Repeat an operation; `within` is the number of its checkpointed call, -1 if there is none."""
        if not operation.name:
            arguments = [self.tensor(each.number) for each in operation.arguments]
            results = [dependent(empty_like(self._recorded.tensors[operation.results[0]]), arguments)]
            self.passed.update(number for number in operation.results if results[0].requires_grad)
        elif _leaves_gradient_undefined(operation, self._recorded.tensors):
            results = self._without(operation)
        else:
            try:
                with torch.set_grad_enabled(operation.records):
                    given = argument_of(operation.arguments, self.tensor)
                    keywords = {name: argument_of(value, self.tensor) for name, value in operation.keywords}
                    function = function_of(operation.name)
                    result = function(*given, **keywords)
                    results = list(tensors_in(result))
                    work = work_of(
                        function, given, result, records=operation.records, again=within >= 0 and operation.records
                    )
                    self.work[operation.call] = self.work.get(operation.call, _NONE).plus(work)
            except Exception:  # noqa: BLE001 - an operation that has no implementation on this device, or needs data
                results = self._without(operation)
        for number, tensor in zip(operation.results, results):
            self._take(number, tensor)

    def _without(self, operation: Operation) -> list[torch.Tensor]:
        """Return the recorded results of an operation that cannot be repeated."""
        arguments = [self.tensor(number) for number in numbers_in((operation.arguments, operation.keywords))]
        recorded = [self._recorded.tensors[number] for number in operation.results]
        passes = operation.records and any(argument.requires_grad for argument in arguments)
        results = [empty_like(each) for each in recorded]
        dtypes = map(dtype_of, recorded)
        if passes and any(dtype.is_floating_point or dtype.is_complex for dtype in dtypes):
            self.unknown[operation.name] = None
            return [dependent(each, arguments) for each in results]
        return results

    def _take(self, number: int, tensor: torch.Tensor) -> None:
        self._tensors[number] = tensor
        storage, size = tensor.untyped_storage(), self._recorded.tensors[number].bytes
        if self._live is not None:
            self._live.add(tensor, size)
        elif storage.nbytes() != size:
            self.bytes[storage._cdata] = size  # noqa: SLF001 - the identity of a storage
            self._kept.append(storage)


def _leaves_gradient_undefined(operation: Operation, tensors: Sequence[RecordedTensor]) -> bool:
    """Return whether backward returns no gradient at all, so that what is before it gets none although the graph leads there.

    In torch/csrc/autograd/FunctionsManual.cpp, `norm_backward` does so for the norm of order 0, and
    `householder_product_backward` without reflectors.
    """
    given = operation.arguments
    if operation.name == "aten.linalg_vector_norm.default":
        return given[1:2] == (0,)
    return operation.name == "aten.linalg_householder_product.default" and 0 in tensors[given[1].number].shape
