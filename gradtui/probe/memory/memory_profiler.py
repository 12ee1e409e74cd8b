"""Profile one step with an `AllocationLog`, from the step's first forward to its end. Training thread only.

The log is active only within the script's own calls of forward, backward and the optimizer's step: a mode that stayed active
across the script's code could interfere with the script's own modes. What happens in between (mostly the loss) is added from
the allocator's total when backward begins.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator

import torch
from torch.optim import Optimizer

from gradtui.probe.autograd import OUTSIDE, ModuleCallLog
from gradtui.probe.memory.allocation_log import AllocationLog
from gradtui.probe.memory.memory_profile import PhaseMark, highest_by_module, holdings, phase_at, thinned
from gradtui.probe.model import ModuleTree, buffers_of, state_tensors
from gradtui.probe.model import optimizer_membership as membership
from gradtui.probe.torch_private.private_names import is_lazy, number_of, running_node
from gradtui.protocol.events import StepMemoryProfiled
from gradtui.protocol.vocabulary import Phase


class MemoryProfiler:
    """Profiles one step."""

    def __init__(
        self, tree: ModuleTree, modules: ModuleCallLog, optimizers: Iterable[Optimizer], device_type: str, total: int
    ) -> None:
        self._tree = tree
        self._modules = modules
        self._optimizers = [weakref.ref(optimizer) for optimizer in optimizers]
        self._marks: list[PhaseMark] = []
        self._depth = 0
        self._trace = AllocationLog(device_type, total, self._module_now)
        self._name_all()

    def phase(self, phase: Phase) -> None:
        """Record that this phase begins."""
        self._marks.append(PhaseMark(len(self._trace.curve) - 1, phase))

    @property
    def own_ns(self) -> int:
        """Nanoseconds that logging has taken so far."""
        return self._trace.own_ns

    @property
    def operations(self) -> int:
        """Number of operations logged."""
        return self._trace.operations

    def enter(self) -> None:
        """Begin to log a call of the script's. It may be within another one (an optimizer's step within backward)."""
        self._depth += 1
        self._trace.enter()

    def leave(self) -> None:
        """End the call."""
        self._depth -= 1
        if self._depth <= 0:
            self._trace.leave()
            self._depth = 0

    def pause(self) -> bool:
        """Stop logging until `resume`. Return False if nothing is being logged, or logging cannot be stopped."""
        return self._trace.is_on and self._trace.leave()

    def resume(self) -> None:
        """Continue after a pause."""
        self._trace.enter()

    def abandon(self) -> None:
        """Stop logging, without a result."""
        self._trace.leave()
        self._trace.close()

    def measured(self, total: int | None) -> None:
        """Correct the curve to the allocator's total."""
        if total is not None:
            self._trace.measured(total)

    def highest_since(self, index: int) -> int:
        """Return the highest total since an index of the curve."""
        return max(self._trace.curve[index:])

    @property
    def index(self) -> int:
        """The current index on the curve."""
        return len(self._trace.curve) - 1

    def finish(self, at: float, step: int) -> StepMemoryProfiled:
        """End logging and return the profile of the step. Raises any exception that logging has caught."""
        self._trace.leave()
        if self._trace.failure is not None:
            raise self._trace.failure
        self._name_all()
        self._trace.close()
        curve = self._trace.curve
        peak = max(curve)
        peak_at = curve.index(peak)
        thin = thinned(curve)
        stretch = -(-len(curve) // max(1, len(thin)))
        parents = [module.parent for module in self._tree.modules]
        return StepMemoryProfiled(
            at,
            step,
            thin,
            len(curve),
            tuple((mark.phase, mark.index // stretch) for mark in self._marks),
            peak,
            phase_at(self._marks, peak_at),
            self._trace.modules[peak_at],
            holdings(self._trace.allocations, peak_at, peak, self._marks),
            highest_by_module(curve, self._trace.modules, parents),
            self._trace.is_whole,
            listing=self._tree.listing,
        )

    def _module_now(self) -> int:
        node = running_node()
        return self._modules.now if node is None else self._modules.module_of(number_of(node))

    def _name_all(self) -> None:
        for tensor, kind, module in self._known():
            if not is_lazy(tensor):
                self._trace.know(tensor, kind, module)

    def _known(self) -> Iterator[tuple[torch.Tensor, str, int]]:
        tree = self._tree
        owners: dict[int, int] = {}
        for index, tensor in tree.live_parameters():
            module = tree.parameters[index].module
            owners[id(tensor)] = module
            yield tensor, "parameters", module
            if tensor.grad is not None:
                yield tensor.grad, "gradients", module
        for module, buffer in buffers_of(tree):
            yield buffer, "buffers", module
        living = (optimizer for reference in self._optimizers if (optimizer := reference()) is not None)
        for optimizer in living:
            for tensor in membership.parameters(optimizer):
                for state in state_tensors(optimizer.state.get(tensor, {})):
                    yield state, "optimizer_state", owners.get(id(tensor), OUTSIDE)
