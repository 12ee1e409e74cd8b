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
        self.log = AllocationLog(device_type, total, self._module_now)
        self._name_all()

    def phase(self, phase: Phase) -> None:
        """Record that this phase begins."""
        self._marks.append(PhaseMark(len(self.log.curve) - 1, phase))

    def enter(self) -> None:
        """Begin to log a call of the script's. It may be within another one (an optimizer's step within backward)."""
        self._depth += 1
        self.log.enter()

    def leave(self) -> None:
        """End the call."""
        self._depth -= 1
        if self._depth <= 0:
            self.log.leave()
            self._depth = 0

    def abandon(self) -> None:
        """Stop logging, without a result."""
        self.log.leave()
        self.log.close()

    def finish(self, at: float, step: int) -> StepMemoryProfiled:
        """End logging and return the profile of the step. Raises any exception that logging has caught."""
        self.log.leave()
        if self.log.failure is not None:
            raise self.log.failure
        self._name_all()
        self.log.close()
        curve = self.log.curve
        peak = max(curve)
        peak_at = curve.index(peak)
        thin = thinned(curve)
        stretch = -(-len(curve) // max(1, len(thin)))
        return StepMemoryProfiled(
            at,
            step,
            thin,
            len(curve),
            tuple((mark.phase, mark.index // stretch) for mark in self._marks),
            peak,
            phase_at(self._marks, peak_at),
            self.log.modules[peak_at],
            holdings(self.log.allocations, peak_at, peak, self._marks),
            highest_by_module(curve, self.log.modules, self._tree.parents),
            self.log.is_whole,
            listing=self._tree.listing,
        )

    def _module_now(self) -> int:
        node = running_node()
        return self._modules.now if node is None else self._modules.module_of(number_of(node))

    def _name_all(self) -> None:
        for tensor, kind, module in self._known():
            if not is_lazy(tensor):
                self.log.know(tensor, kind, module)

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
