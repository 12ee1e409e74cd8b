"""Questions that panels and reports ask of a `RunState`. Pure functions; no caching beyond what is passed in."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate

from gradtui.protocol.commands import (
    Pause,
    Resume,
    RunSteps,
    RunTo,
    StopTraining,
    TrainOnly,
)
from gradtui.protocol.events import CommandApplied
from gradtui.protocol.vocabulary import PROBLEM_STATES, MemoryBytes, ModuleInfo, ParameterState, Phase
from gradtui.state.run_state import PhaseRecord, RunState, TreeState
from gradtui.state.selection import NothingSelected, find
from gradtui.state.series import Series, joint_norm


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
    """Whether the state of any parameter is known."""
    return bool(tree.states.strip(ParameterState.UNKNOWN.value))


def subtree(module: ModuleInfo) -> range:
    """Indices of the parameters in a module's subtree."""
    return range(module.first_parameter, module.first_parameter + module.subtree_parameters)


def totals(tree: TreeState, module: ModuleInfo) -> SubtreeTotals:
    """Sums over one module's subtree; linear in its parameters."""
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


def kept_for(tree: TreeState, index: int) -> int | None:
    """A parameter outside of a module's subtree for whose gradient autograd keeps what passes through it; None if none is."""
    module = tree.modules[index]
    own = subtree(module)
    upstream = tree.saved.upstream if tree.saved is not None else ()
    found = upstream[index : index + module.subtree_modules]
    return next((parameter for parameter in found if parameter >= 0 and parameter not in own), None)


def saved_bytes(tree: TreeState, index: int) -> int | None:
    """Bytes autograd keeps for backward in the subtree of module `index`; None until measured."""
    if tree.saved is None:
        return None
    return sum(tree.saved.by_module[index : index + tree.modules[index].subtree_modules])


def subtree_saved_bytes(tree: TreeState) -> list[int | None]:
    """By module: what `saved_bytes` says of it, in one pass."""
    if tree.saved is None:
        return [None] * len(tree.modules)
    sums = [0, *accumulate(tree.saved.by_module)]
    return [sums[place + module.subtree_modules] - sums[place] for place, module in enumerate(tree.modules)]


def model_of(tree: TreeState, index: int) -> int:
    """The place among the models of the one that module `index` is in."""
    return max(place for place, model in enumerate(tree.models) if model.root <= index)


def measured_step(tree: TreeState, index: int) -> int:
    """The step in which what passes through module `index` was measured last; 0 if never."""
    for place in range(len(tree.models) - 1, -1, -1):
        if tree.models[place].root <= index and place < len(tree.steps):
            return tree.steps[place]
    return 0


def recomputed_bytes(tree: TreeState, index: int) -> tuple[int | None, int] | None:
    """What backward computes again in the subtree of module `index`, and what checkpointed regions within it keep, in bytes.

    None where nothing is checkpointed, as far as was seen; the first is None where nobody saw how much it is.
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
    """The first parameter after index `after`, wrapping round, whose state needs a look; None if there is none."""
    letters = {state.value for state in PROBLEM_STATES}
    count = len(tree.states)
    for offset in range(1, count + 1):
        index = (after + offset) % count
        if tree.states[index] in letters:
            return index
    return None


def problem_count(tree: TreeState) -> int:
    """How many parameters are in a state that needs a look."""
    return sum(tree.states.count(state.value) for state in PROBLEM_STATES)


def state_of(tree: TreeState, index: int) -> ParameterState:
    """The state of one parameter."""
    return ParameterState(tree.states[index])


def module_at(tree: TreeState, path: str) -> int | None:
    """Index of the module with this path, None if there is none."""
    for index, module in enumerate(tree.modules):
        if module.path == path:
            return index
    return None


def pending_parameters(state: RunState) -> dict[int, bool]:
    """Parameters with a freeze (False) or unfreeze (True) on its way."""
    waiting: dict[int, bool] = {}
    for command in state.pending_toggles():
        if isinstance(command, TrainOnly):
            chosen = set(_places(state.tree, command.selection))
            now = state.tree.trainable
            # Only where it is not so yet.
            waiting |= {place: place in chosen for place, flag in enumerate(now) if (flag == "1") != (place in chosen)}
        else:
            waiting |= dict.fromkeys(_places(state.tree, command.path), command.trainable)
    return waiting


def _places(tree: TreeState, selection: str) -> Iterable[int]:
    """What a selection names; nothing where it cannot be told."""
    module = module_at(tree, selection)
    if module is not None:
        return subtree(tree.modules[module])
    try:
        return find(selection, tree).places
    except NothingSelected:
        return ()


class RunStatus(str, Enum):
    """What a run is doing as a whole."""

    LOADING = "loading"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    RESUMING = "resuming"
    STOPPING = "stopping"
    ENDED = "ended"
    INTERRUPTED = "interrupted"
    FAILED = "failed"

    __str__ = str.__str__


def run_status(state: RunState) -> RunStatus:
    """The run as a whole, the person's unanswered commands included."""
    if state.ended is not None:
        if state.ended.error is None:
            return RunStatus.ENDED
        raised = state.ended.error.rstrip().rpartition("\n")[2]
        return RunStatus.INTERRUPTED if raised.startswith("KeyboardInterrupt") else RunStatus.FAILED
    waiting = {type(command) for command in state.pending.values()}
    if StopTraining in waiting:
        return RunStatus.STOPPING
    if state.paused:
        return RunStatus.RESUMING if waiting & {Resume, RunSteps, RunTo} else RunStatus.PAUSED
    if waiting & {Pause, RunSteps}:
        return RunStatus.PAUSING
    return RunStatus.RUNNING if has_trained(state) or state.phase is not Phase.LOAD else RunStatus.LOADING


def has_trained(state: RunState) -> bool:
    """Whether any backward or optimizer step has been seen."""
    return state.step > 0 or state.micro_steps > 0


def fullest_phase(state: RunState, phases: tuple[Phase, ...]) -> Phase | None:
    """Of the measured ones among `phases` the one that ends with the most bytes, None if none was measured.

    What is within 2 % of the most counts as much, and of those the first is taken: the answer does not change from step to
    step where two phases hold about the same.
    """
    measured = {phase: last.held for phase in phases if (last := state.phases[phase].last) is not None}
    totals = {phase: max(0, held.total or 0) for phase, held in measured.items()}
    most = max(totals.values(), default=0)
    return next((phase for phase, total in totals.items() if total >= 0.98 * most), None)


def unexplained_at_load(state: RunState) -> int | None:
    """Bytes that were in no category when the first forward began: what imports and data had taken by then.

    None where that is not known or nothing was.
    """
    last = state.phases[Phase.LOAD].last
    other = last.held.other if last is not None else None
    return other if other is not None and other > 0 else None


def unexplained_parts(state: RunState, held: MemoryBytes) -> tuple[int | None, int | None]:
    """What is in no category, divided: what was there when the first forward began, and what training has added since.

    The first is None where that was not measured; then the second is all of it. Both are None where there is no total.
    """
    before = unexplained_at_load(state)
    if held.other is None or before is None:
        return None, held.other
    at_load = max(0, min(before, held.other))
    return at_load, held.other - at_load


def unexplained_growth(state: RunState, held: MemoryBytes) -> tuple[int | None, int | None]:
    """What training has added to what is in no category, divided: with the first step, and since.

    With the first step come buffers that libraries keep (MKL's and oneDNN's for matrix products are the size of their
    operands) and what torch imports only then. The first is None where that step was not measured; then the second is all.
    """
    at_load, added = unexplained_parts(state, held)
    if added is None or state.unexplained_first is None:
        return None, added
    first = max(0, min(state.unexplained_first - (at_load or 0), added))
    return first, added - first


def highest_peak(state: RunState) -> tuple[Phase, PhaseRecord] | None:
    """The phase with the highest total so far, None while no peak is known."""
    known = [(phase, record) for phase, record in state.phases.items() if record.peak is not None]
    return max(known, key=lambda entry: entry[1].peak or 0, default=None)


def norm_steps_of(tree: TreeState, parameters: range) -> tuple[int, int] | None:
    """The first and the last step that the norms of these parameters are of. None where none has a norm."""
    if tree.norms is None or tree.norms_step is None:
        return None
    if tree.norm_steps is None:
        is_known = any(tree.norms[place] is not None for place in parameters)
        return (tree.norms_step, tree.norms_step) if is_known else None
    steps = [step for place in parameters if (step := tree.norm_steps[place]) is not None]
    return (min(steps), max(steps)) if steps else None


def total_norm_at(state: RunState, step: int | None) -> float | None:
    """The norm of all gradients together at a step, None where it was not read then.

    Totals may be read more often than the norms of single parameters: a part must not be set beside a later whole.
    """
    return value_at(state.gradient_norm, step)


def value_at(curve: Series, step: int | None) -> float | None:
    """The value of a curve at a step, None where it has none there."""
    place = bisect_left(curve.steps, step) if step is not None else len(curve)
    return curve.values[place] if place < len(curve) and curve.steps[place] == step else None


def optimizers_of(state: RunState, parameter: int) -> list[int]:
    """Indices of the optimizers that own a parameter."""
    return [index for index, optimizer in enumerate(state.optimizers) if parameter in optimizer.parameters]


def toggles_of(state: RunState, parameters: range) -> list[CommandApplied]:
    """The interventions that changed one of these parameters, the newest first."""
    return [
        applied
        for applied in reversed(state.interventions)
        if any(parameter in parameters for parameter in applied.parameters)
    ]


def trainable_wish(state: RunState, parameters: range) -> bool | None:
    """What a toggle of these parameters asks for: freeze (False) if any of them trains or is about to, else unfreeze (True).

    None while it is not known of any of them whether it trains.
    """
    pending = pending_parameters(state)
    flags = [pending.get(index, _FLAGS.get(state.tree.trainable[index])) for index in parameters]
    if all(flag is None for flag in flags):
        return None
    return not any(flags)


_FLAGS = {"1": True, "0": False}
