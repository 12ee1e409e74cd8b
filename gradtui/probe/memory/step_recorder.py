"""Record the operations of one step's forward, within the script's own calls. Training thread only.

A mode that stayed active across the script's code could interfere with the script's own modes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

import torch

from gradtui.probe.autograd import GraphSummary, ModuleCallLog, OperationLog, OperationRecord, ParameterUse
from gradtui.probe.model import ModuleTree
from gradtui.probe.torch_private.cuda import is_capturing
from gradtui.protocol.events import OperationsRecorded, StepMemoryProfiled
from gradtui.protocol.vocabulary import Phase

Log = TypeVar("Log", bound=OperationLog)


class StepRecorder(Generic[Log]):
    """Receives the operations of one step in its calls of forward, backward and the optimizer's step.

    Args:
        tree: the models.
        modules: the calls of modules in the step.
        log: receives the operations.
    """

    def __init__(self, tree: ModuleTree, modules: ModuleCallLog, log: Log) -> None:
        self.log = log
        self._tree = tree
        self._modules = modules
        self._record: OperationRecord | None = None
        self.use: ParameterUse | None = None
        """Which frozen parameters the step reads; None if none is frozen."""
        if any(not tensor.requires_grad for _, tensor in tree.live_parameters()):
            self.use = ParameterUse(tree, modules)
        self._depth = 0

    def record_operations(self) -> None:
        """Record the operations of the step's forward."""
        self._record = OperationRecord(self._tree, self._modules)

    def phase(self, phase: Phase) -> None:
        """Record that this phase begins."""
        is_forward = phase is Phase.FORWARD
        self.log.record, self.log.use = (self._record, self.use) if is_forward else (None, None)

    def backward_begins(self, roots: Iterable[torch.Tensor]) -> None:
        """Record from which tensors backward begins."""
        if self._record is not None:
            self._record.ends_with(roots)

    def recorded(self, at: float, step: int) -> OperationsRecorded | None:
        """Return the operations of the step; None if they were not to be recorded."""
        return self._record.finish(at, step) if self._record is not None else None

    def saved(self, facts: GraphSummary) -> None:
        """Record what autograd keeps when backward begins."""

    def finish(self, at: float, step: int) -> StepMemoryProfiled | None:  # noqa: ARG002 - for those that profile
        """Return the profile of the step's memory; None where only its operations are recorded."""
        return None

    def enter(self) -> None:
        """Handle the beginning of a call of the script's. It may be within another one (a step within backward)."""
        self._depth += 1
        if self._is_wanted():
            self.log.enter()

    def leave(self) -> None:
        """Handle the end of the call."""
        self._depth -= 1
        if self._depth <= 0:
            self.log.leave()
            self._depth = 0

    def close(self) -> None:
        """Stop. The results stay."""
        self.log.leave()

    def _is_wanted(self) -> bool:
        """Return whether the operations of the call that begins are of interest."""
        if self.log.record is not None and is_capturing():
            self.log.record.give_up("the step is captured in a CUDA graph")
            self.log.record = self.log.use = None
            if self.use is not None:
                self.use.give_up()
        return self.log.record is not None
