"""Record the operations of a forward as plain data. Training thread, in single steps whose operations are logged anyway.

A dispatch mode receives operations below autograd. Autograd has created the node of an operation by then, and the node has the
newest sequence number. Through this number the graph leads from a tensor back to the recorded operations that it depends on.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from gradtui.probe.autograd.module_call_log import OUTSIDE, ModuleCallLog
from gradtui.probe.autograd.operation_flops import FlopCount
from gradtui.probe.model import ModuleTree, buffers_of
from gradtui.probe.torch_private.private_names import (
    GraphNode,
    is_lazy,
    is_wrapper,
    leaf_of,
    number_of,
    sequence_number,
)
from gradtui.probe.torch_private.saved_hooks import is_own_region
from gradtui.probe.torch_private.unshown_tensors import unpack_hook_in_force
from gradtui.protocol.operations import (
    ModuleCall,
    Operation,
    OperationsRecorded,
    RecordedTensor,
    TensorNumber,
    TorchConstant,
)

MAX_OPERATIONS = 5_000
"""A step with more operations is not recorded: each takes the planner a third of a millisecond on a slow core, while a user
waits."""
_MAX_NODES = 20_000
"""The most nodes of a graph that are followed from one tensor."""

_PLAIN = (int, float, bool, str, complex, type(None))


class NotRecordedError(Exception):
    """The step cannot be recorded. The message says why."""


class OperationRecord:
    """Records the operations of one step up to its first backward. Further micro-steps must repeat them.

    Args:
        tree: the models.
        log: the calls of modules.
    """

    def __init__(self, tree: ModuleTree, log: ModuleCallLog) -> None:
        self._log = log
        self._calls: dict[int, int] = {}
        """The index in the record of each call, by its number in the log."""
        self._call_infos: list[ModuleCall] = []
        self._listing = tree.listing
        self._parameters = {id(tensor): index for index, tensor in tree.live_parameters() if not is_lazy(tensor)}
        self._buffers = {id(buffer) for _, buffer in buffers_of(tree) if not is_lazy(buffer)}
        self._tensors: list[RecordedTensor] = []
        self._operations: list[Operation] = []
        self._numbers: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        """The number of each living tensor, by its `id()`."""
        self._differentiable: set[int] = set()
        """The numbers of the tensors through which a gradient comes to a recorded operation, or to a leaf."""
        self._made_by: dict[int, tuple[int, ...]] = {}
        """Sequence number of a node -> numbers of the tensors that its operation returned."""
        self._regions: dict[int, int] = {}
        """The number of each region, by the `id()` of its unpack hook."""
        self._own_regions: set[int] = set()
        self._ends: dict[int, None] = {}
        self._later = 0
        """Operations of further forwards, after the first backward of the step."""
        self._missing = ""
        self._flops = FlopCount()

    def add(self, function: Any, arguments: Sequence[Any], keywords: dict[str, Any], result: Any) -> None:
        """Record an operation that has run."""
        self._flops.add(function, arguments, keywords, result)
        if self._missing:
            return
        if self._ends:
            self._later += 1
            return
        try:
            if len(self._operations) >= MAX_OPERATIONS:
                raise NotRecordedError(f"the forward has more than {MAX_OPERATIONS:,} operations")
            self._add(function, arguments, keywords, result)
        except NotRecordedError as error:
            self.give_up(str(error))

    def ends_with(self, roots: Iterable[torch.Tensor]) -> None:
        """Record that backward begins from these tensors."""
        try:
            # The graph of a later forward is another one.
            for root in roots if not self._missing and not self._later else ():
                if root.grad_fn is not None:
                    self._ends |= dict.fromkeys(self._upstream(root.grad_fn))
        except NotRecordedError as error:
            self.give_up(str(error))

    def give_up(self, reason: str) -> None:
        """Record nothing of this step, for a reason in words."""
        self._missing = self._missing or reason

    def finish(self, at: float, step: int) -> OperationsRecorded:
        """Return the record."""
        flops = self._flops.by_dtype, self._flops.has_more, self._log.modules.count(OUTSIDE)
        if self._later % max(1, len(self._operations)):
            self.give_up("the step runs backward on graphs of different operations")
        if self._missing or not self._operations:
            missing = self._missing or "no module was called"
            return OperationsRecorded(at, step, (), (), (), (), (), missing, *flops, listing=self._listing)
        return OperationsRecorded(
            at, step, tuple(self._tensors), tuple(self._operations), tuple(self._ends), tuple(self._call_infos),
            tuple(sorted(self._own_regions)), "", *flops,
            listing=self._listing,
        )  # fmt: skip

    def _add(self, function: Any, arguments: Sequence[Any], keywords: dict[str, Any], result: Any) -> None:
        number = sequence_number() - 1
        taken: dict[int, torch.Tensor] = {}
        given = tuple(self._plain(value, taken) for value in arguments)
        named = tuple((name, self._plain(value, taken)) for name, value in keywords.items())
        returned: list[int] = []
        self._returned(result, returned)
        if not returned:
            return
        records = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        if records and not self._differentiable.isdisjoint(taken):
            self._differentiable.update(returned)
        if records and any(tensor.requires_grad for tensor in taken.values()):
            # Without such an argument autograd made no node, and the number is that of an earlier operation.
            self._made_by.setdefault(number, tuple(returned))
        self._operations.append(
            Operation(
                str(function), given, named, tuple(returned), records, self._log.now, self._call(),
                self._region() if records else -1,
            )
        )  # fmt: skip

    def _call(self) -> int:
        """Return the index of the innermost call that is running."""
        index = -1
        for number, module in self._log.calls_now:
            if number not in self._calls:
                self._calls[number] = len(self._call_infos)
                self._call_infos.append(ModuleCall(module, index))
            index = self._calls[number]
        return index

    def _region(self) -> int:
        hook = unpack_hook_in_force()
        if hook is None:
            return -1
        number = self._regions.setdefault(id(hook), len(self._regions))
        if is_own_region(hook):
            self._own_regions.add(number)
        return number

    def _plain(self, value: Any, taken: dict[int, torch.Tensor]) -> Any:
        if isinstance(value, torch.Tensor):
            number = self._taken(value)
            taken[number] = value
            return TensorNumber(number)
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, (tuple, list)):
            return tuple(self._plain(each, taken) for each in value)
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return TorchConstant(str(value).removeprefix("torch."))
        if isinstance(value, torch.device):
            return TorchConstant("device")
        if isinstance(value, torch.Generator):
            return None
        raise NotRecordedError(f"an operation takes a {type(value).__name__}")

    def _taken(self, tensor: torch.Tensor) -> int:
        known = self._numbers.get(id(tensor))
        if known is not None and known[0]() is tensor:
            number = known[1]
        else:
            number = self._add_tensor(tensor)
            if tensor.requires_grad and tensor.grad_fn is None:
                self._differentiable.add(number)
        if tensor.grad_fn is not None and number not in self._differentiable and torch.is_grad_enabled():
            upstream = tuple(map(TensorNumber, self._upstream(tensor.grad_fn)))
            self._operations.append(Operation("", upstream, (), (number,), True, self._log.now, self._call()))
            self._differentiable.add(number)
        return number

    def _returned(self, result: Any, numbers: list[int]) -> None:
        if isinstance(result, torch.Tensor):
            known = self._numbers.get(id(result))
            is_known = known is not None and known[0]() is result
            numbers.append(known[1] if known is not None and is_known else self._add_tensor(result))
        elif isinstance(result, (tuple, list)):
            for each in result:
                self._returned(each, numbers)

    def _add_tensor(self, tensor: torch.Tensor) -> int:
        is_plain = type(tensor) is torch.Tensor or not is_wrapper(tensor)
        if not is_plain or tensor.layout is not torch.strided:
            raise NotRecordedError(f"an operation takes a {type(tensor).__name__} that is no plain strided tensor")
        number, parameter = len(self._tensors), self._parameters.get(id(tensor), -1)
        self._tensors.append(
            RecordedTensor(
                tuple(tensor.shape), tensor.stride(), str(tensor.dtype).removeprefix("torch."),
                tensor.untyped_storage().nbytes(), parameter, id(tensor) in self._buffers,
                parameter < 0 and tensor.requires_grad and tensor.grad_fn is None,
            )
        )  # fmt: skip
        if parameter >= 0:
            # Whether it requires a gradient is what a plan changes.
            self._differentiable.add(number)
        self._numbers[id(tensor)] = weakref.ref(tensor), number
        return number

    def _upstream(self, node: GraphNode) -> list[int]:
        """Return the numbers of the nearest tensors of recorded operations, and leaves, that a node's result depends on."""
        found: dict[int, None] = {}
        seen, waiting = {node}, [node]
        while waiting:
            each = waiting.pop()
            leaf = leaf_of(each)
            made = () if leaf is not None else self._made_by.get(number_of(each), ())
            if leaf is not None:
                found[self._taken(leaf)] = None
            elif made:
                found |= dict.fromkeys(number for number in made if number in self._differentiable)
            else:
                following = [following for following, _ in each.next_functions if following is not None]
                waiting += [following for following in following if following not in seen]
                seen.update(following)
            if len(seen) > _MAX_NODES:
                raise NotRecordedError("too much happens outside of the models' forward")
        return list(found)
