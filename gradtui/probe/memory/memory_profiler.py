"""Profile one step with an `AllocationLog`, from the step's first forward to its end. Training thread only.

The log is active only within the script's own calls of forward, backward and the optimizer's step. What happens in between
(mostly the loss) is added from the allocator's total when backward begins.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import torch
from torch.optim import Optimizer

from gradtui.probe.autograd import OUTSIDE, ModuleCallLog
from gradtui.probe.memory.allocation_log import Allocation, AllocationLog, PhaseMark, StepCourse
from gradtui.probe.memory.step_recorder import StepRecorder
from gradtui.probe.model import ModuleTree, buffers_of, state_tensors
from gradtui.probe.model import optimizer_membership as membership
from gradtui.probe.torch_private.private_names import is_lazy, number_of, running_node
from gradtui.protocol.events import StepMemoryProfiled, StepPeaks
from gradtui.protocol.vocabulary import Holding, Phase

CURVE_POINTS = 512
_MAX_HOLDINGS = 12

_KINDS = {Phase.FORWARD: "activations", Phase.BACKWARD: "temporaries", Phase.OPTIMIZER: "temporaries"}
"""Default category of what is made in a phase and belongs to nothing known. A forward's result usually waits for backward."""


class MemoryProfiler(StepRecorder[AllocationLog]):
    """Profiles one step."""

    def __init__(
        self, tree: ModuleTree, modules: ModuleCallLog, optimizers: Iterable[Optimizer], device_type: str, total: int
    ) -> None:
        super().__init__(tree, modules, AllocationLog(device_type, total, partial(module_now, modules)))
        self._optimizers = [weakref.ref(optimizer) for optimizer in optimizers]
        self._marks: list[PhaseMark] = []
        self._name_all()

    def phase(self, phase: Phase) -> None:
        """Record that this phase begins."""
        self._marks.append((len(self.log.curve) - 1, phase))
        super().phase(phase)

    def highest_in(self, phase: Phase) -> int | None:
        """Return the highest total so far while this phase ran; None if it has not run."""
        curve = self.log.curve
        ends = [begin for begin, _ in self._marks[1:]]
        stretches = zip(self._marks, [*ends, len(curve) - 1])
        return max((max(curve[begin : end + 1]) for (begin, each), end in stretches if each is phase), default=None)

    def close(self) -> None:
        """Stop. The results stay."""
        super().close()
        self.log.close()

    def finish(self, at: float, step: int) -> StepMemoryProfiled:
        """End logging and return the profile of the step. Raises any exception that logging has caught."""
        self.log.leave()
        if self.log.failure is not None:
            raise self.log.failure
        self._name_all()
        self.close()
        course = StepCourse(self.log.curve, self.log.modules, self.log.allocations, self._marks)
        return profile_of(course, self._tree, at, step, is_whole=self.log.is_whole)

    def _is_wanted(self) -> bool:
        return True

    def _name_all(self) -> None:
        for tensor, kind, module in known_tensors(self._tree, self._optimizers):
            if not is_lazy(tensor):
                self.log.know(tensor, kind, module)


def known_tensors(
    tree: ModuleTree, optimizers: Iterable[weakref.ref[Optimizer]]
) -> Iterator[tuple[torch.Tensor, str, int]]:
    """Yield the tensors of the models and of their optimizers, with the category and the module of each."""
    owners: dict[int, int] = {}
    for index, tensor in tree.live_parameters():
        module = tree.parameters[index].module
        owners[id(tensor)] = module
        yield tensor, "parameters", module
        if tensor.is_leaf and (gradient := tensor.grad) is not None:
            yield gradient, "gradients", module
    for module, buffer in buffers_of(tree):
        yield buffer, "buffers", module
    living = (optimizer for reference in optimizers if (optimizer := reference()) is not None)
    for optimizer in living:
        for tensor in membership.parameters(optimizer):
            for state in state_tensors(optimizer.state.get(tensor, {})):
                yield state, "optimizer_state", owners.get(id(tensor), OUTSIDE)


def profile_of(
    course: StepCourse, tree: ModuleTree, at: float, step: int, *, is_whole: bool, block: int = 1
) -> StepMemoryProfiled:
    """Return the profile of a step with this course, whose blocks are multiples of `block` bytes."""
    curve, marks = course.curve, course.marks
    peak = max(curve)
    peak_at = curve.index(peak)
    thin = thinned(curve)
    stretch = -(-len(curve) // max(1, len(thin)))
    return StepMemoryProfiled(
        at,
        step,
        thin,
        len(curve),
        tuple((phase, index // stretch) for index, phase in marks),
        peak,
        phase_at(marks, peak_at),
        course.modules[peak_at],
        holdings(course.allocations, peak_at, peak, marks),
        highest_by_module(curve, course.modules, tree.parents),
        is_whole,
        *highest_in_backward(curve, course.modules, marks),
        held_by_module(course.allocations, peak_at, len(tree.parents)),
        max(course.blocks) if course.blocks is not None else None,
        _peaks(step, course.blocks, course, block) if course.blocks is not None else None,
        _optimizer_scratch(curve, marks),
        listing=tree.listing,
    )


def _peaks(step: int, curve: Sequence[int], course: StepCourse, block: int) -> StepPeaks:
    """Return the peaks of the phases on a curve that has the changes of a course."""
    marks = course.marks
    return StepPeaks(
        step, tuple((phase, max(curve[begin : end + 1])) for begin, end, phase in _stretches(curve, marks)),
        curve[0], curve[-1], min(curve), *highest_in_backward(curve, course.modules, marks),
        scratch=_optimizer_scratch(curve, marks), steps_at_once=True, block=block,
    )  # fmt: skip


def _stretches(curve: Sequence[int], marks: Sequence[PhaseMark]) -> Iterator[tuple[int, int, Phase]]:
    """Yield where each phase begins and ends, and the phase. What is at its begin was there before."""
    ends = [begin for begin, _ in marks[1:]]
    return ((begin, end, phase) for (begin, phase), end in zip(marks, [*ends, len(curve) - 1]))


def _optimizer_scratch(curve: Sequence[int], marks: Sequence[PhaseMark]) -> int:
    steps = [
        max(curve[begin : end + 1]) - max(curve[begin], curve[end])
        for begin, end, phase in _stretches(curve, marks)
        if phase is Phase.OPTIMIZER
    ]
    return steps[0] if len(steps) == 1 else 0


def module_now(modules: ModuleCallLog) -> int:
    """Return the index of the module whose forward, or whose operation in backward, is running."""
    node = running_node()
    return modules.now if node is None else modules.module_of(number_of(node))


def phase_at(marks: Sequence[PhaseMark], index: int) -> Phase:
    """Return the phase that contains an index of the curve."""
    at = bisect_right([begin for begin, _ in marks], index) - 1
    return marks[at][1] if at >= 0 else Phase.OTHER


def holdings(
    allocations: Iterable[Allocation], index: int, total: int, marks: Sequence[PhaseMark]
) -> tuple[Holding, ...]:
    """Return who holds the bytes at an index of the curve, by category and module, largest first, then the unexplained rest.

    Beyond the `_MAX_HOLDINGS` largest, the bytes of a category are added up under no module.
    """
    sums: dict[tuple[str, int], list[int]] = {}
    for allocation in allocations:
        if _lives(allocation, index):
            kind = allocation.kind or _kind(allocation, marks)
            entry = sums.setdefault((kind, allocation.module), [0, 0])
            entry[0] += allocation.nbytes
            entry[1] += 1
    order = sorted(sums, key=lambda entry: -sums[entry][0])
    shown = {entry: sums[entry] for entry in order[:_MAX_HOLDINGS]}
    for small in order[_MAX_HOLDINGS:]:
        elsewhere = shown.setdefault((small[0], OUTSIDE), [0, 0])
        elsewhere[0] += sums[small][0]
        elsewhere[1] += sums[small][1]
    held = [Holding(kind, module, size, tensors) for (kind, module), (size, tensors) in shown.items()]
    held.sort(key=lambda holding: -holding.bytes)
    rest = total - sum(holding.bytes for holding in held)
    return (*held, Holding("other", OUTSIDE, rest, 0))


def held_by_module(allocations: Iterable[Allocation], index: int, modules: int) -> tuple[int, ...]:
    """Return the bytes that each of a number of modules itself holds at an index of the curve."""
    held = [0] * modules
    for allocation in allocations:
        if allocation.module >= 0 and _lives(allocation, index):
            held[allocation.module] += allocation.nbytes
    return tuple(held)


def _lives(allocation: Allocation, index: int) -> bool:
    return allocation.born <= index and (allocation.died < 0 or allocation.died > index)


def _kind(allocation: Allocation, marks: Sequence[PhaseMark]) -> str:
    phase = phase_at(marks, allocation.born)
    if not allocation.made and phase is Phase.FORWARD:
        return "input"
    return _KINDS.get(phase, "temporaries")


def highest_by_module(curve: Sequence[int], modules: Sequence[int], parents: Sequence[int]) -> tuple[int | None, ...]:
    """Return the highest total while each module or its submodules ran; None for a module that did not run.

    `modules[i]` is the innermost module running at `curve[i]`, `parents[m]` the parent of module m (-1: none).
    """
    highest: list[int | None] = [None] * len(parents)
    own: dict[int, int] = {}
    for bytes_, module in zip(curve, modules):
        if bytes_ > own.get(module, -1):
            own[module] = bytes_
    for module, bytes_ in own.items():
        while module >= 0:
            before = highest[module]
            highest[module] = bytes_ if before is None else max(before, bytes_)
            module = parents[module]
    return tuple(highest)


def highest_in_backward(
    curve: Sequence[int], modules: Sequence[int], marks: Sequence[PhaseMark]
) -> tuple[int | None, int | None]:
    """Return the highest total in backward from when it reaches a known module on, and before that; None if there is none.

    Gradients are accumulated outside of all modules, so the module alone does not tell.
    """
    models, loss = list[int](), list[int]()
    for begin, end, phase in _stretches(curve, marks):
        if phase is Phase.BACKWARD:
            # What is at index `begin` was there before.
            part = slice(begin + 1, end + 1)
            reached = next((at for at, module in enumerate(modules[part]) if module >= 0), None)
            totals = curve[part]
            loss += totals[:reached]
            models += totals[reached:] if reached is not None else []
    return max(models, default=None), max(loss, default=None)


def thinned(curve: Sequence[int], points: int = CURVE_POINTS) -> tuple[int, ...]:
    """Return the maximum of each of at most `points` stretches of equal length, in order. The peak is always one of them."""
    stretch = -(-len(curve) // points)
    return tuple(max(curve[at : at + stretch]) for at in range(0, len(curve), stretch))
