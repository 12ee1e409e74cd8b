"""Derived values of a `RunState` for panels and reports. Pure functions without caching."""

from __future__ import annotations

import math
from bisect import bisect_left
from enum import Enum
from itertools import accumulate

from gradtui.dataclass import dataclass
from gradtui.protocol.commands import Pause, Resume, RunSteps, RunTo, StopTraining
from gradtui.protocol.events import CommandApplied
from gradtui.protocol.vocabulary import (
    PROBLEM_STATES,
    STATES_BY_URGENCY,
    MemoryBytes,
    ModuleInfo,
    ParameterState,
    Phase,
)
from gradtui.run.state.norms.shown_norms import shown_norms
from gradtui.run.state.run_state import RunState
from gradtui.run.state.series import Series, joint_norm
from gradtui.run.state.tree.model_parts import children
from gradtui.run.state.tree_state import TreeState

MAX_JOINED = 1_000
"""The update ratios of at most this many parameters are joined."""


@dataclass(frozen=True)
class SubtreeTotals:
    """Sums over the parameters of a module's subtree."""

    parameters: int
    """Elements."""
    trainable: int
    """Elements that require a gradient; 0 while unknown."""
    bytes: int
    norm: float | None
    states: str
    """The distinct state letters, in order of first appearance."""


def is_classified(tree: TreeState) -> bool:
    """Return whether the state of any parameter is known."""
    return bool(tree.states.strip(ParameterState.UNKNOWN.value))


def subtree(module: ModuleInfo) -> range:
    """Return the indexes of the parameters in a module's subtree."""
    return range(module.first_parameter, module.first_parameter + module.subtree_parameters)


def row_parameters(tree: TreeState, row: int) -> range:
    """Return the indexes of the parameters of a row of the tree: of a module, or of a parameter by its inverted index."""
    return range(~row, ~row + 1) if row < 0 else subtree(tree.modules[row])


def totals(tree: TreeState, module: ModuleInfo) -> SubtreeTotals:
    """Return the sums over one module's subtree. Linear in its parameters."""
    where = subtree(module)
    count = size = trainable = 0
    for index in where:
        info = tree.parameters[index]
        count += info.count
        size += info.bytes
        if tree.trainable[index] == "1":
            trainable += info.count
    norm = joint_norm(tree.norms[where.start : where.stop]) if tree.norms is not None else None
    letters = "".join(dict.fromkeys(tree.states[where.start : where.stop]))
    return SubtreeTotals(count, trainable, size, norm, letters)


_LETTERS = "".join(state.value for state in STATES_BY_URGENCY)


def letters_of(tree: TreeState, where: range) -> str:
    """Return the distinct state letters of a range of parameters, those that need attention first."""
    states = tree.states
    return "".join(letter for letter in _LETTERS if states.find(letter, where.start, where.stop) >= 0)


def joint_ratio(tree: TreeState, where: range) -> float | None:
    """Return the norm of the last update of the trainable parameters of a range divided by the norm of their values.

    None if it was measured for none of them, or if there are too many to go through.
    """
    if not tree.gradient_figures or len(where) > MAX_JOINED:
        return None
    known = [
        tree.gradient_figures[index][1]
        for index in where
        if index in tree.gradient_figures and tree.trainable[index] == "1"
    ]
    measured = [(each.update_ratio, each.weight_norm) for each in known if each.update_ratio is not None]
    weights = math.hypot(*(weight for _, weight in measured))
    return math.hypot(*(ratio * weight for ratio, weight in measured)) / weights if weights else None


def kept_for(tree: TreeState, index: int) -> int | None:
    """Return a parameter outside of a module's subtree for whose gradient autograd keeps tensors of the module; None if there
    is none."""
    module = tree.modules[index]
    own = subtree(module)
    upstream = tree.saved.upstream if tree.saved is not None else ()
    found = dict.fromkeys(upstream[index : index + module.subtree_modules])
    return next((parameter for parameter in found if parameter >= 0 and parameter not in own), None)


def saved_bytes(tree: TreeState, index: int) -> int | None:
    """Return the bytes that autograd keeps for backward in the subtree of module `index`; None until measured."""
    if tree.saved is None:
        return None
    return sum(tree.saved.by_module[index : index + tree.modules[index].subtree_modules])


def most_saved(tree: TreeState) -> int | None:
    """The smallest subtree that holds more than half of the saved bytes; None if only a model that holds all of them does.

    The search stops at a module whose parameters are all frozen: the reason is the same for all that it holds.
    """
    if tree.saved is None:
        return None
    half = tree.saved.total / 2
    roots = [model.root for model in tree.models if saved_bytes(tree, model.root)]
    found = None
    waiting = roots if len(roots) > 1 else [child for root in roots for child in children(tree, root)]
    while found is None or not is_frozen(tree, found):
        heavy = next((index for index in waiting if (saved_bytes(tree, index) or 0) > half), None)
        if heavy is None:
            return found
        found, waiting = heavy, list(children(tree, heavy))
    return found


def is_frozen(tree: TreeState, index: int) -> bool:
    """Return whether the subtree of a module has parameters, all of them known to be frozen."""
    where = subtree(tree.modules[index])
    return bool(where) and set(tree.trainable[where.start : where.stop]) == {"0"}


def subtree_saved_bytes(tree: TreeState) -> list[int | None]:
    """Return `saved_bytes` of every module, in one pass."""
    if tree.saved is None:
        return [None] * len(tree.modules)
    sums = [0, *accumulate(tree.saved.by_module)]
    return [sums[index + module.subtree_modules] - sums[index] for index, module in enumerate(tree.modules)]


def gets_gradient(tree: TreeState, parameters: range) -> bool:
    """Return whether a gradient comes to one of these parameters."""
    unreached = ParameterState.UNREACHED.value
    return any(tree.trainable[index] == "1" and tree.states[index] != unreached for index in parameters)


def model_of(tree: TreeState, index: int) -> int:
    """Return the index of the model that contains module `index`."""
    return max(number for number, model in enumerate(tree.models) if model.root <= index)


def measured_step(tree: TreeState, index: int) -> int:
    """Return the last step in which the gradient flow through module `index` was measured; 0 if never."""
    for model in range(len(tree.models) - 1, -1, -1):
        if tree.models[model].root <= index and model < len(tree.steps):
            return tree.steps[model]
    return 0


def recomputed_bytes(tree: TreeState, index: int) -> tuple[int | None, int] | None:
    """Return the bytes that backward recomputes in the subtree of module `index`, and those that its checkpointed regions keep.

    None if nothing is known to be checkpointed. The first value is None if unknown.
    """
    if tree.saved is None or not tree.saved.recomputed:
        return None
    where = slice(index, index + tree.modules[index].subtree_modules)
    sizes, inputs = tree.saved.recomputed[where], sum(tree.saved.region_inputs[where])
    if not inputs and not any(size != 0 for size in sizes):
        return None
    known = [size for size in sizes if size is not None]
    return (sum(known) if len(known) == len(sizes) else None), inputs


def next_problem(tree: TreeState, after: int) -> int | None:
    """Return the first parameter after index `after`, wrapping around, in a problem state; None if there is none."""
    letters = {state.value for state in PROBLEM_STATES}
    count = len(tree.states)
    in_order = ((after + offset) % count for offset in range(1, count + 1))
    return next((index for index in in_order if tree.states[index] in letters), None)


def problem_count(tree: TreeState) -> int:
    """Return the number of parameters in a problem state."""
    return sum(tree.states.count(state.value) for state in PROBLEM_STATES)


def state_of(tree: TreeState, index: int) -> ParameterState:
    """Return the state of one parameter."""
    return ParameterState(tree.states[index])


def module_at(tree: TreeState, path: str) -> int | None:
    """Return the index of the module with this path, None if there is none."""
    return next((index for index, module in enumerate(tree.modules) if module.path == path), None)


class RunStatus(str, Enum):
    """The status of a run as a whole."""

    LOADING = "loading"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    RESUMING = "resuming"
    STOPPING = "stopping"
    ENDED = "ended"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    OUT_OF_SIGHT = "out of sight"

    __str__ = str.__str__


def run_status(state: RunState) -> RunStatus:
    """Return the status of the run, including the user's unanswered commands."""
    if state.ended is not None:
        if state.ended.error is None:
            return RunStatus.ENDED
        is_interrupted = state.ended.headline.startswith("KeyboardInterrupt")
        return RunStatus.INTERRUPTED if is_interrupted else RunStatus.FAILED
    if state.out_of_sight is not None:
        return RunStatus.OUT_OF_SIGHT
    waiting = {type(command) for command in state.pending.values()}
    if StopTraining in waiting:
        return RunStatus.STOPPING
    if state.paused:
        return RunStatus.RESUMING if waiting & {Resume, RunSteps, RunTo} else RunStatus.PAUSED
    if waiting & {Pause, RunSteps}:
        return RunStatus.PAUSING
    return RunStatus.RUNNING if has_trained(state) or state.phase is not Phase.LOAD else RunStatus.LOADING


def next_stop(state: RunState) -> int | None:
    """Return the step after which `RunTo` or a breakpoint pauses the run next; None if there is none."""
    steps = [int(each.value) for each in state.breakpoints.values() if each.metric == "step"]
    if state.runs_to is not None:
        steps.append(state.runs_to)
    return min(steps, default=None) if state.ended is None else None


def has_trained(state: RunState) -> bool:
    """Return whether any backward or optimizer step has occurred."""
    return state.step > 0 or state.micro_steps > 0


def fullest_phase(state: RunState, phases: tuple[Phase, ...]) -> Phase | None:
    """Return the measured phase among `phases` that ends with the most bytes, None if none was measured.

    Phases within 2 % of the maximum count as equal, and the first of them is returned, so that the answer does not alternate
    from step to step between two phases that hold about the same.
    """
    measured = {phase: last.held for phase in phases if (last := state.phases[phase].last) is not None}
    totals = {phase: max(0, held.total or 0) for phase, held in measured.items()}
    most = max(totals.values(), default=0)
    return next((phase for phase, total in totals.items() if total >= 0.98 * most), None)


def is_on_host(state: RunState) -> bool:
    """Return whether the models are on the CPU, as far as that is known."""
    return state.started is None or state.started.device in ("", "cpu")


def is_on_cuda(state: RunState) -> bool:
    """Return whether the models are on CUDA devices, whose memory totals are the allocator's: a device goes by its own name."""
    return state.started is not None and state.started.ledger.startswith("CUDA allocator")


def unexplained_parts(before: int | None, held: MemoryBytes) -> tuple[int | None, int | None]:
    """Divide the bytes in no category into the `before` from before the first forward, and those that training has added.

    The first value is None if it was not measured; then the second is all of them. Both are None if there is no total.
    """
    if held.other is None or before is None:
        return None, held.other
    at_load = max(0, min(before, held.other))
    return at_load, held.other - at_load


def unexplained_growth(state: RunState, held: MemoryBytes) -> tuple[int | None, int | None]:
    """Divide the bytes in no category that training has added into those of the first step, and those added since.

    The first step adds buffers that libraries keep (MKL's and oneDNN's for matrix products are the size of their operands)
    and late imports of torch. The first value is None if that step was not measured; then the second is all of them.
    """
    at_load, added = unexplained_parts(state.held_since_load, held)
    if added is None or state.unexplained_first is None:
        return None, added
    first = max(0, min(state.unexplained_first - (at_load or 0), added))
    return first, added - first


def learning_rates(state: RunState) -> list[float]:
    """Return the different learning rates of all optimizers that still exist, in ascending order."""
    groups = state.groups.optimizers if state.groups is not None else ()
    return sorted({group.learning_rate for each in groups for group in each if group.learning_rate is not None})


def norm_steps_of(tree: TreeState, parameters: range) -> tuple[int, int] | None:
    """Return the first and the last step of the norms of these parameters. None if none has a norm."""
    if tree.norms is None or tree.norms_step is None:
        return None
    if tree.norm_steps is None:
        is_known = any(tree.norms[index] is not None for index in parameters)
        return (tree.norms_step, tree.norms_step) if is_known else None
    steps = [step for step in tree.norm_steps[parameters.start : parameters.stop] if step is not None]
    return (min(steps), max(steps)) if steps else None


def newest_step(state: RunState) -> int:
    """Return the newest step of which anything is known: what was measured of a step may come before the step is counted."""
    curves = [state.loss, state.gradient_norm]
    curves += [series for each in state.of_optimizers.values() for series in (each.loss, each.gradient_norm)]
    return max([state.step, *(series.steps[-1] for series in curves if len(series))])


def newest_loss(state: RunState) -> tuple[float | None, int | None]:
    """Return the newest loss and its step; None if there is none, or if nothing can read those of the present steps."""
    if state.steps_without_loss or not len(state.loss):
        return None, None
    return state.loss.last, state.loss.steps[-1]


def total_norm_at(state: RunState, step: int | None) -> float | None:
    """Return the total gradient norm at a step, None if it was not read at that step.

    gradtui may read the total more often than the norms of single parameters. A part must not be compared with a later total.
    """
    return value_at(shown_norms(state).total, step)


def value_at(curve: Series, step: int | None) -> float | None:
    """Return the value of a curve at a step, None if it has none there."""
    index = bisect_left(curve.steps, step) if step is not None else len(curve)
    return curve.values[index] if index < len(curve) and curve.steps[index] == step else None


def optimizers_of(state: RunState, parameter: int) -> list[int]:
    """Return the indexes of the optimizers that own a parameter."""
    return [index for index, optimizer in enumerate(state.optimizers) if parameter in optimizer.parameters]


def toggles_of(state: RunState, parameters: range) -> list[CommandApplied]:
    """Return the interventions that changed one of these parameters, the newest first."""
    return [
        applied
        for applied in reversed(state.interventions)
        if any(parameter in parameters for parameter in applied.parameters)
    ]
